"""Members of groups, their subscriptions and the expiry of silent clients."""

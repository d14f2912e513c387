"""Assignment of queues to members of groups, and message request modes."""

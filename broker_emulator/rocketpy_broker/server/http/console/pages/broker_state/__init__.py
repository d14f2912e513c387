"""The state of the broker: the overview with its alerts, and the store."""

"""The broker's state: the overview with its alerts, and the store."""

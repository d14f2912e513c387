"""Pop consumption: check points, acknowledgements, revive, and assignments of queues."""

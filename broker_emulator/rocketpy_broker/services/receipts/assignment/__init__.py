"""Assignment of queues to members of groups, and modes of reading."""

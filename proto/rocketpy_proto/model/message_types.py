"""Types of messages, and the attribute of a topic with the type that it accepts.

Source: TopicMessageType, docs/design/storage.md section 11.2.
"""

from __future__ import annotations

MESSAGE_TYPE = "message.type"
NORMAL, FIFO, DELAY, TRANSACTION = "NORMAL", "FIFO", "DELAY", "TRANSACTION"
PRIORITY = "PRIORITY"
# Of topics alone: all types, and no attribute.
MIXED, UNSPECIFIED = "MIXED", "UNSPECIFIED"
MESSAGE_TYPES = (UNSPECIFIED, NORMAL, FIFO, DELAY, TRANSACTION, PRIORITY, MIXED)

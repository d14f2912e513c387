"""Messages for tests of the store: appended and read back."""

from __future__ import annotations

from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import GetMessageStatus, QueueKey, ReadLimits
from tests.support.blocks import bodies_of, wire_block

QUEUE = QueueKey("TopicA", 2)
OTHER = QueueKey("TopicB", 0)
NO_END = 1 << 60


def put(store: MessageStore, bodies: list[bytes], queue: QueueKey = QUEUE) -> int:
    """Appends one block; returns its physical offset."""
    return store.append(queue, wire_block(queue.topic, bodies).parsed()).physical_offset


def put_all(store: MessageStore, bodies: list[bytes]) -> None:
    """Appends messages in blocks of five."""
    for start in range(0, len(bodies), 5):
        put(store, bodies[start : start + 5])


def flush_log(store: MessageStore) -> None:
    """Flushes all of the log."""
    plan = store.plan_flush()
    plan.run()
    store.flushed(plan)


def save_manifest(store: MessageStore) -> None:
    """Saves the manifest, so that the next start skips the dispatched records."""
    store.save_manifest(store.plan_manifest())


def remove_oldest_segment(store: MessageStore) -> None:
    """Removes the first segment and the derived data that only it needs."""
    removal = store.plan_removal()
    removal.run()
    store.removed(removal)
    save_manifest(store)


def delete_topic(store: MessageStore, topic: str) -> None:
    """Removes a topic's queues permanently."""
    with store.deletions.refusing(topic):
        store.deletions.mark(topic)
        store.deletions.forget(topic)
        store.deletions.remove_files(topic)


def read_all(store: MessageStore, queue: QueueKey = QUEUE, bytes_max: int = 1 << 20) -> list[bytes]:
    """Returns all bodies of a queue in order, in as many reads as needed."""
    offset = store.range_of(queue).min_offset
    bodies: list[bytes] = []
    while True:
        result = store.get_message(queue, offset, NO_END, ReadLimits.of_bytes(bytes_max))
        if result.status is not GetMessageStatus.FOUND:
            return bodies
        data = b"".join(bytes(part) for part in result.parts)
        bodies += bodies_of(data, result.sizes)
        assert result.next_offset == offset + len(result.sizes)
        offset = result.next_offset


def numbered(count: int, start: int = 0) -> list[bytes]:
    """Returns distinct bodies."""
    return [b"message %d" % number for number in range(start, start + count)]

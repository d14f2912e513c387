"""Known topics of a client: 8 bytes a queue, whatever the order of its entries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy_broker.services.offsets.known import QUEUE_BYTES, TOPIC_BYTES, KnownOffsets
from rocketpy_broker.store.values import QueueKey

ENTRIES = st.lists(
    st.tuples(
        st.sampled_from(["T", "U"]), st.integers(-2, 6), st.integers(0, 9), st.integers(0, 2)
    ),
    max_size=20,
)


@given(ENTRIES)
def test_n14_queues_are_known_as_in_a_table(entries: list[tuple[str, int, int, int]]) -> None:
    known = KnownOffsets(entries)
    known.close_gaps()
    table = {QueueKey(topic, queue_id): maximum for topic, queue_id, maximum, _ in entries}
    for topic in ("T", "U"):
        ids = {queue.queue_id for queue in table if queue.topic == topic}
        if ids != set(range(len(ids))):
            assert known.has_gaps
            continue
        assert known.count(topic) == len(ids)
        for queue_id in range(7):
            queue = QueueKey(topic, queue_id)
            assert known.maximum(queue) == table.get(queue)
    assert known.epochs == {topic: epoch for topic, _, _, epoch in entries}


def test_n14_a_gap_is_told_of_topics_that_are_kept() -> None:
    known = KnownOffsets([("T", 1, 5, 0), ("U", 7, 5, 0), ("T", 0, 4, 0)])
    known.close_gaps()
    assert known.has_gaps
    known.keep(lambda topic: topic == "T")
    assert known.kept_bytes == TOPIC_BYTES + 2 * QUEUE_BYTES
    assert (known.queue_count, known.maximum(QueueKey("T", 1))) == (2, 5)


@pytest.mark.parametrize("queue_id", [-1, 1 << 30])
def test_n14_a_strange_queue_takes_no_memory(queue_id: int) -> None:
    known = KnownOffsets([("T", queue_id, 5, 0)])
    known.close_gaps()
    assert known.has_gaps
    assert known.queue_count == 0

"""Send batches from blocks: the same messages, in order, each for one queue, within the limit."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketpy.transport.remoting.send.batches import ADDED_BYTES_MAX, send_batches
from pyspark_rocketpy.transport.remoting.send.requests import BATCH_MESSAGES_MAX
from pyspark_rocketpy.transport.write_values import DELAY_TIMED
from rocketpy_proto.call_limits import OWN_QUEUES
from rocketpy_proto.remoting import BatchMessage, decode_batch, encode_batch
from rocketpy_proto.remoting.batches import BATCH_BYTES_MAX
from tests.unit.connector.transport.remoting.scripted_cluster import TOPIC
from tests.unit.connector.transport.remoting.stored_blocks import messages_of, of_bodies, stored
from tests.unit.remoting.recorded import needs_golden, request

MESSAGES = st.lists(
    st.builds(
        BatchMessage,
        st.binary(min_size=1, max_size=40),
        st.dictionaries(
            st.text("abcÜ😀", min_size=1, max_size=5), st.text("xyzß", min_size=1), max_size=3
        ).map(lambda found: "".join(f"{k}\x01{v}\x02" for k, v in found.items()).encode()),
        st.integers(-(1 << 31), (1 << 31) - 1),
    ),
    min_size=1,
    max_size=20,
)


def plain(messages: list[BatchMessage]) -> list[tuple[bytes, bytes, int]]:
    return [(bytes(one.body), one.properties, one.flag) for one in messages]


@given(MESSAGES)
def test_a_batch_has_the_block_s_messages_byte_by_byte(messages: list[BatchMessage]) -> None:
    [(number, send_batch)] = send_batches(stored(messages, queue_id=7))
    assert (number, send_batch.count) == (7, len(messages))
    assert plain(messages_of(send_batch)) == plain(messages)
    if len(messages) > 1:
        assert bytes(send_batch.body) == encode_batch(messages)


@given(MESSAGES, st.data())
def test_a_block_of_many_queues_goes_to_each_in_its_order(
    messages: list[BatchMessage], data: st.DataObject
) -> None:
    numbers = st.lists(st.integers(0, 2), min_size=len(messages), max_size=len(messages))
    queue_ids = data.draw(numbers)
    found: dict[int, list[BatchMessage]] = defaultdict(list)
    for number, send_batch in send_batches(stored(messages, queue_ids, queue_id=OWN_QUEUES)):
        found[number] += messages_of(send_batch)
    for number in set(queue_ids):
        expected = [m for m, own in zip(messages, queue_ids, strict=True) if own == number]
        assert plain(found[number]) == plain(expected)


@needs_golden
@pytest.mark.parametrize("recorded", ["07_send_batch", "J03_java_send_batch"])
def test_a_batch_is_what_java_sends(recorded: str) -> None:
    body = request(recorded).body
    [(_, send_batch)] = send_batches(stored(decode_batch(body)))
    assert send_batch.body == body


def test_a_message_alone_is_no_batch() -> None:
    [(_, send_batch)] = send_batches(stored([BatchMessage(b"body", b"TAGS\x01a\x02", 5)]))
    assert (send_batch.body, send_batch.properties, send_batch.flag) == (
        b"body",
        "TAGS\x01a\x02",
        5,
    )


@pytest.mark.parametrize("delay", [1, DELAY_TIMED])
def test_messages_that_wait_go_one_by_one(delay: int) -> None:
    messages = [BatchMessage(b"%d" % number, b"DELAY\x011\x02") for number in range(3)]
    found = list(send_batches(stored(messages, queue_id=1, delay=delay)))
    assert [(number, send_batch.body) for number, send_batch in found] == [
        (1, b"0"),
        (1, b"1"),
        (1, b"2"),
    ]
    assert {send_batch.properties for _, send_batch in found} == {"DELAY\x011\x02"}


def test_no_batch_becomes_more_bytes_than_4_9_takes() -> None:
    body = b"x" * 1_000
    found = [send_batch for _, send_batch in send_batches(of_bodies(*[body] * 10_000))]
    assert sum(send_batch.count for send_batch in found) == 10_000
    # A stored record has 91 bytes and its topic, besides the body.
    record_bytes = len(body) + 91 + len(TOPIC) + ADDED_BYTES_MAX
    assert max(send_batch.count for send_batch in found) == BATCH_BYTES_MAX // record_bytes


def test_no_batch_has_more_messages_than_an_answer_names() -> None:
    counts = [
        send_batch.count
        for _, send_batch in send_batches(of_bodies(*[b"x"] * (BATCH_MESSAGES_MAX + 2)))
    ]
    assert sum(counts) == BATCH_MESSAGES_MAX + 2
    assert max(counts) <= BATCH_MESSAGES_MAX


def test_the_largest_message_goes_alone_among_others() -> None:
    bodies = [b"a", b"b", b"x" * BATCH_BYTES_MAX, b"c"]
    found = [send_batch for _, send_batch in send_batches(of_bodies(*bodies, is_movable=True))]
    assert [send_batch.count for send_batch in found] == [2, 1, 1]
    assert [bytes(m.body) for send_batch in found for m in messages_of(send_batch)] == bodies
    assert all(send_batch.is_movable for send_batch in found)

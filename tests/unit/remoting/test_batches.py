"""The body of a batch send."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy_proto.record import MalformedRecordError
from rocketpy_proto.record.block.batch_body import (
    batch_parts,
    decode_batch_body,
    decode_batch_part,
)
from rocketpy_proto.remoting import RemotingFormatError, UnencodableRemotingError
from rocketpy_proto.remoting.batches import (
    BatchMessage,
    decode_batch,
    encode_batch,
    split_batches,
)
from tests.unit.remoting.recorded import needs_golden, request
from tests.unit.remoting.strategies import INT32

MESSAGES = st.lists(
    st.builds(BatchMessage, st.binary(max_size=20), st.binary(max_size=20), INT32), max_size=5
)


@given(MESSAGES)
def test_a_batch_is_the_same_behind_its_bytes(messages: list[BatchMessage]) -> None:
    encoded = encode_batch(messages)
    assert decode_batch(encoded) == messages
    assert sum(message.size for message in messages) == len(encoded)


@needs_golden
@pytest.mark.parametrize("exchange", ["07_send_batch", "J03_java_send_batch"])
def test_a_recorded_batch_is_read_and_written_again(exchange: str) -> None:
    body = request(exchange).body
    messages = decode_batch(body)
    assert encode_batch(messages) == body
    assert len(messages) > 1


@needs_golden
def test_a_recorded_batch_is_what_it_was() -> None:
    assert decode_batch(request("07_send_batch").body)[1] == BatchMessage(
        b"b1", b"TAGS\x01Y\x02UNIQ_KEY\x01AC11000118B4AAC2463D8D7C0000BB01\x02", 4
    )


def test_bodies_are_views() -> None:
    encoded = encode_batch([BatchMessage(b"body")])
    (message,) = decode_batch(encoded)
    assert isinstance(message.body, memoryview)
    assert message.body.obj is encoded


@given(MESSAGES, st.data())
def test_a_cut_or_changed_batch_raises_nothing_else(
    messages: list[BatchMessage], data: st.DataObject
) -> None:
    encoded = bytearray(encode_batch([*messages, BatchMessage(b"last")]))
    with pytest.raises(RemotingFormatError):
        decode_batch(bytes(encoded[: -data.draw(st.integers(1, 25))]))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] = data.draw(st.integers(0, 255))
    try:
        decode_batch(bytes(encoded))
    except RemotingFormatError:
        return


@given(MESSAGES, st.integers(1, 4), st.data())
def test_columns_of_a_batch_have_its_messages(
    messages: list[BatchMessage], times: int, data: st.DataObject
) -> None:
    # Repeated messages have the same size more often than drawn ones.
    encoded = bytearray(encode_batch(messages * times or [BatchMessage(b"")]))
    if data.draw(st.booleans()):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        expected = decode_batch(bytes(encoded))
    except RemotingFormatError:
        with pytest.raises(MalformedRecordError) as whole:
            decode_batch_body(bytes(encoded))
        cut = batch_parts(bytes(encoded), data.draw(st.integers(1, 5)), 100)
        with pytest.raises(MalformedRecordError) as by_parts:
            list(map(decode_batch_part, cut))
        # Some other message may be malformed, too.
        assert by_parts.value.position <= whole.value.position
        return
    parts = list(batch_parts(bytes(encoded), data.draw(st.integers(1, 5)), 100))
    assert b"".join(part.body for part in parts) == encoded
    assert [part.first for part in parts][1:] == list(
        accumulate(len(decode_batch_part(part).body) for part in parts[:-1])
    )
    columns = decode_batch_body(bytes(encoded))
    assert columns.body.to_pylist() == [bytes(each.body) for each in expected]
    assert columns.properties.to_pylist() == [each.properties for each in expected]
    assert columns.flag.to_pylist() == [each.flag for each in expected]


@given(MESSAGES, st.integers(1, 120))
def test_runs_are_as_long_as_fits(messages: list[BatchMessage], limit: int) -> None:
    runs = list(split_batches(messages, limit))
    assert [message for run in runs for message in run] == messages
    sizes = [sum(message.size for message in run) for run in runs]
    assert all(size <= limit or len(run) == 1 for size, run in zip(sizes, runs, strict=True))
    for size, following in zip(sizes, runs[1:], strict=False):
        assert size + following[0].size > limit


@pytest.mark.parametrize(
    "message", [BatchMessage(b"", bytes(1 << 15)), BatchMessage(b"", flag=1 << 31)]
)
def test_a_message_that_does_not_fit_is_declared(message: BatchMessage) -> None:
    with pytest.raises(UnencodableRemotingError):
        encode_batch([message])

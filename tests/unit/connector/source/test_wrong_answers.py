"""Answers of a broker that contradict themselves or the request."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import grpc
import numpy as np
import pyarrow as pa
import pytest

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import ConnectionFailedError, DataLossError, OffsetError
from pyspark_rocketpy.offsets import QueueRange
from pyspark_rocketpy.source.message_filter import MessageFilter
from pyspark_rocketpy.source.range_reader import ReadConfig, read_ranges
from pyspark_rocketpy.transport.grpc_v1.range_puller import (
    PULL_NOT_FOUND,
    PULL_OFFSET_MOVED,
    PULL_RETRY_IMMEDIATELY,
    SUCCESS,
)
from pyspark_rocketpy.transport.grpc_v1.transport import GrpcTransport
from pyspark_rocketpy.transport.values import PullOptions, RetryPolicy
from rocketpy_proto.record import COLUMN_TYPES, RecordBlock
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.support.blocks import wire_block
from tests.unit.connector.transport.grpc_v1.scripted_pulls import (
    STORE_HOST,
    Answers,
    response,
    scripted_broker,
    status,
    stored,
)

SCHEMA = pa.schema([pa.field("body", COLUMN_TYPES["body"], nullable=False)])
FOUND, NO_MATCHED = broker_pb2.FOUND, broker_pb2.NO_MATCHED_MESSAGE
X = MessageFilter(tags=("x",))
RETRIES = RetryPolicy(3, 1)


def read(
    answers: Answers, wanted: MessageFilter | None = None, *, fail_on_data_loss: bool = True
) -> list[bytes]:
    """Returns the bodies of offsets [0, 3) of queue 0 of topic T; fails after 100 calls."""
    wanted = wanted or MessageFilter()
    options = PullOptions("group", 1 << 20, fail_on_data_loss, wanted.tags_codes)
    with scripted_broker(answers) as broker:
        config = ReadConfig(GrpcTransport(broker.config, RETRIES), options, wanted)
        batches = read_ranges(config, (QueueRange("T", 0, 0, 3),), SCHEMA)
        return [body for batch in batches for body in batch["body"].to_pylist()]


def always(*responses: broker_pb2.PullResponse) -> Answers:
    """Returns the same answers to each of at most 100 pulls."""
    calls = itertools.count()

    def answers(
        _request: broker_pb2.PullRequest, _context: grpc.ServicerContext
    ) -> Iterator[broker_pb2.PullResponse]:
        assert next(calls) < 100, "it is asked without end"
        return iter(responses)

    return answers


def foreign(topic: str, queue_id: int) -> RecordBlock:
    """Returns offsets [0, 3) of another queue."""
    block = wire_block(topic, [b"0", b"1", b"2"], tags="x").parsed()
    block.patch_stored(
        queue_offset_first=0,
        physical_offset_first=0,
        store_timestamp_ms=1,
        store_host=STORE_HOST,
        queue_id=queue_id,
    )
    return block


THREE = stored(0, [b"0", b"1", b"2"], tags="x")
ONE_OF_OTHERS = RecordBlock.parse(
    stored(0, [b"0"]).data.tobytes() + foreign("U", 0).data.tobytes()[: int(THREE.sizes[0])]
)


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "sleep_ms", lambda _ms: None)


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        pytest.param(status(SUCCESS, FOUND, 3), None, id="found nothing"),
        pytest.param(status(SUCCESS, FOUND, 3), X, id="found nothing with a filter"),
        pytest.param(status(SUCCESS, FOUND, 1 << 60), None, id="found nothing for all"),
        pytest.param(status(SUCCESS, NO_MATCHED, 3), None, id="no match"),
        pytest.param(status(PULL_RETRY_IMMEDIATELY, NO_MATCHED, 3), None, id="no match, go on"),
        pytest.param(status(SUCCESS, broker_pb2.PULL_STATUS_UNSPECIFIED, 3), None, id="no status"),
        pytest.param(response(stored(0, [b"0"]), next_offset=3), None, id="too few"),
        pytest.param(response(THREE, next_offset=2), None, id="too many"),
        pytest.param(response(THREE, next_offset=1), X, id="too many with a filter"),
        pytest.param(response(THREE, next_offset=0), None, id="a next offset that stands still"),
        pytest.param(response(THREE, next_offset=-5), X, id="a next offset below the range"),
        pytest.param(response(foreign("U", 0), next_offset=3), None, id="another topic"),
        pytest.param(response(foreign("TT", 0), next_offset=3), X, id="a longer topic"),
        pytest.param(response(foreign("T", 1), next_offset=3), None, id="another queue"),
        pytest.param(response(foreign("T", -1), next_offset=3), X, id="no queue"),
        pytest.param(response(ONE_OF_OTHERS, next_offset=2), None, id="one of another topic"),
    ],
)
def test_a_wrong_answer_is_an_error_whatever_the_options_say(
    answer: broker_pb2.PullResponse, wanted: MessageFilter | None, *, fail_on_data_loss: bool
) -> None:
    with pytest.raises(
        OffsetError, match=r"of queue 0 of topic 'T'.*sent other records than requested"
    ):
        read(always(answer), wanted, fail_on_data_loss=fail_on_data_loss)


def test_steps_to_and_fro_come_to_an_end() -> None:
    one = response(stored(0, [b"0"], tags="x"), next_offset=1)
    back = response(stored(1, [b"1"], tags="x"), next_offset=0)
    for wanted in (None, X):
        with pytest.raises(OffsetError, match=r"offsets \[1, 3\).* 0 as the next offset"):
            read(always(one, back), wanted)
    scanned = [status(PULL_RETRY_IMMEDIATELY, NO_MATCHED, at) for at in (2, 1)]
    with pytest.raises(OffsetError, match=r"offsets \[2, 3\).* 1 as the next offset"):
        read(always(*scanned), X)


@pytest.mark.parametrize(
    ("sizes", "problem"),
    [
        (b"\0\0\0", "3 bytes of sizes are not int32 values"),
        (b"\0\0\0\x60\0", "5 bytes of sizes are not int32 values"),
        (np.array([-1], ">i4").tobytes(), "records"),
        (np.array([-1, 1, 300], ">i4").tobytes(), "damaged"),
        (np.array([1 << 30, 1 << 30, 1 << 30], ">i4").tobytes(), "damaged"),
        (np.array([96, 96, 95], ">i4").tobytes(), "damaged"),
        (np.array([0, 0, 288], ">i4").tobytes(), "damaged"),
        (np.zeros(3, ">i4").tobytes(), "damaged"),
    ],
)
def test_sizes_that_are_none_are_an_error(sizes: bytes, problem: str) -> None:
    answer = response(THREE, next_offset=3)
    answer.record_sizes = sizes
    with pytest.raises(OffsetError, match=problem):
        read(always(answer))


@pytest.mark.parametrize("code", [PULL_NOT_FOUND, PULL_RETRY_IMMEDIATELY, PULL_OFFSET_MOVED])
def test_an_answer_that_names_no_loss_is_asked_for_again_and_given_up(code: int) -> None:
    answer = broker_pb2.PullResponse(max_offset=9, next_offset=0)
    answer.status.code = code
    for fails in (True, False):
        with pytest.raises(ConnectionFailedError, match=r"though the queue now holds \[0, 9\)"):
            read(always(answer), fail_on_data_loss=fails)


def test_a_loss_is_named_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    moved = broker_pb2.PullResponse(min_offset=2, max_offset=9, next_offset=2)
    moved.status.code = PULL_OFFSET_MOVED

    def answers(
        request: broker_pb2.PullRequest, _context: grpc.ServicerContext
    ) -> Iterator[broker_pb2.PullResponse]:
        yield response(stored(2, [b"2"]), next_offset=3) if request.offset == 2 else moved

    with pytest.raises(DataLossError, match=r"2 messages are gone, the queue now holds \[2, 9\)"):
        read(answers)
    assert read(answers, fail_on_data_loss=False) == [b"2"]
    assert "2 messages are gone" in caplog.text


def test_a_whole_answer_is_read() -> None:
    assert read(always(response(replace(THREE), next_offset=3))) == [b"0", b"1", b"2"]

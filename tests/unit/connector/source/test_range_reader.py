"""Reads of ranges from a broker with scripted answers: errors, retries, prefetching."""

from __future__ import annotations

import dataclasses
import itertools
import threading
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import grpc
import pyarrow as pa
import pytest

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import ConnectionFailedError, DataLossError, OffsetError
from pyspark_rocketpy.offsets import QueueRange
from pyspark_rocketpy.source.message_filter import MessageFilter
from pyspark_rocketpy.source.range_reader import ReadConfig, read_ranges
from pyspark_rocketpy.transport.grpc_v1.client import forget_client
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from pyspark_rocketpy.transport.grpc_v1.range_puller import PULL_RETRY_IMMEDIATELY
from pyspark_rocketpy.transport.grpc_v1.transport import GrpcTransport
from pyspark_rocketpy.transport.values import PullOptions, RetryPolicy
from rocketpy_proto.record import COLUMN_TYPES, Record, encode_record
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.support.time_limits import WAIT_SECONDS_MAX
from tests.unit.connector.source.test_poison import GivenRecords
from tests.unit.connector.transport.grpc_v1.scripted_pulls import (
    Answers,
    response,
    scripted_broker,
    status,
    stored,
)

MIB = 1 << 20
# The kernel's buffer for an unread stream; it grows if the machine is busy.
SOCKET_BYTES_MAX = 4 * MIB
SCHEMA = pa.schema([pa.field(name, COLUMN_TYPES[name], nullable=False) for name in ("body",)])


PATIENT = RetryPolicy(16, 100)


@dataclass(frozen=True)
class Pull:
    """Server, timeouts and options of a pull; retries are quick."""

    client: ClientConfig
    retries: RetryPolicy = PATIENT
    fetch_bytes_max: int = MIB
    fail_on_data_loss: bool = True

    def config(self, wanted: MessageFilter) -> ReadConfig:
        """Returns a task's configuration."""
        options = PullOptions(
            "group", self.fetch_bytes_max, self.fail_on_data_loss, wanted.tags_codes
        )
        return ReadConfig(GrpcTransport(self.client, self.retries), options, wanted)


def batches(
    pull: Pull,
    end: int,
    wanted: MessageFilter | None = None,
    names: Sequence[str] = ("body",),
) -> Iterator[pa.RecordBatch]:
    """Reads offsets 0 to `end` of queue 0 of topic T."""
    config = pull.config(wanted or MessageFilter())
    schema = pa.schema([pa.field(name, COLUMN_TYPES[name], nullable=False) for name in names])
    return read_ranges(config, (QueueRange("T", 0, 0, end),), schema)


def bodies(found: Iterator[pa.RecordBatch]) -> list[bytes]:
    """Returns all bodies."""
    return [body for batch in found for body in batch["body"].to_pylist()]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns the list of requested waits in ms, which end at once."""
    asked: list[int] = []
    monkeypatch.setattr(clock, "sleep_ms", asked.append)
    return asked


def always(*responses: broker_pb2.PullResponse) -> Answers:
    """Returns the same answers to each pull."""
    return lambda _request, _context: iter(responses)


def read(answers: Answers, end: int, wanted: MessageFilter | None = None) -> list[bytes]:
    """Returns the bodies of a broker with these answers."""
    with scripted_broker(answers) as broker:
        return bodies(batches(Pull(broker.config), end, wanted))


ZERO = stored(0, [b"0"])
TWO = stored(0, [b"0", b"1"], tags="x")
X = MessageFilter(tags=("x",))


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        pytest.param(response(stored(1, [b"1", b"2", b"3"]), next_offset=3), None, id="moved"),
        pytest.param(response(ZERO, stored(2, [b"2"]), next_offset=3), None, id="gap"),
        pytest.param(response(stored(1, [b"1"]), ZERO, next_offset=3), X, id="falling"),
        pytest.param(response(ZERO, stored(3, [b"3"]), next_offset=3), X, id="beyond"),
    ],
)
def test_wrong_offsets_are_refused(
    answer: broker_pb2.PullResponse, wanted: MessageFilter | None
) -> None:
    message = r"ROCKETPY_OFFSET: offsets \[0, 3\) of queue 0 of topic 'T': the broker sent other"
    with pytest.raises(OffsetError, match=message):
        read(always(answer), 3, wanted)


@pytest.mark.parametrize("wanted", [None, X])
def test_f5_a_damaged_record_is_refused(wanted: MessageFilter | None) -> None:
    answer = response(TWO, next_offset=2)
    damaged = bytearray(answer.records)
    damaged[damaged.index(b"1", int(TWO.body_start[1]))] ^= 1
    answer.records = bytes(damaged)
    with pytest.raises(
        OffsetError, match=r"offsets \[0, 2\) of queue 0 of topic 'T' contain a dam"
    ):
        read(always(answer), 2, wanted)


@pytest.mark.parametrize("wanted", [None, X])
def test_s5_lost_messages_name_topic_queue_range_and_option(wanted: MessageFilter | None) -> None:
    lost = status(PULL_RETRY_IMMEDIATELY, broker_pb2.MESSAGE_WAS_REMOVING, next_offset=5)
    message = r"offsets \[2, 9\) of queue 0 of topic 'T': 3 messages are gone.*failOnDataLoss"
    with pytest.raises(DataLossError, match=message):
        read(always(response(TWO, next_offset=2), lost), 9, wanted)


def test_s5_lost_messages_are_passed_over_on_request() -> None:
    lost = status(PULL_RETRY_IMMEDIATELY, broker_pb2.MESSAGE_WAS_REMOVING, next_offset=5)

    def answers(
        request: broker_pb2.PullRequest, _context: grpc.ServicerContext
    ) -> Iterator[broker_pb2.PullResponse]:
        if request.offset == 0:
            yield from (response(TWO, next_offset=2), lost)
        else:
            yield response(stored(request.offset, [b"5"]), next_offset=6)

    with scripted_broker(answers) as broker:
        pull = Pull(broker.config, fail_on_data_loss=False)
        assert bodies(batches(pull, 6)) == [b"0", b"1", b"5"]


def test_c03_gaps_that_a_filter_leaves_are_no_loss() -> None:
    nothing = status(PULL_RETRY_IMMEDIATELY, broker_pb2.NO_MATCHED_MESSAGE, next_offset=40)
    last = status(0, broker_pb2.NO_MATCHED_MESSAGE, next_offset=90)
    others = response(stored(40, [b"a"], tags="x"), stored(47, [b"b"], tags="x"), next_offset=60)
    assert read(always(nothing, others, last), 90, X) == [b"a", b"b"]


def test_c03_a_hash_that_the_broker_takes_for_the_tag_never_leaks() -> None:
    found = response(
        stored(0, [b"0"], tags="Aa"), stored(1, [b"1"], tags="BB"), stored(2, [b"2"]), next_offset=3
    )
    assert read(always(found), 3, MessageFilter(tags=("BB",))) == [b"1"]


def test_k03_a_pull_goes_on_behind_what_has_come(waits: list[int]) -> None:
    def answers(
        request: broker_pb2.PullRequest, context: grpc.ServicerContext
    ) -> Iterator[broker_pb2.PullResponse]:
        offset = request.offset
        yield response(stored(offset, [b"%d" % offset]), next_offset=offset + 1)
        if offset < 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, "gone")

    with scripted_broker(answers) as broker:
        assert bodies(batches(Pull(broker.config), 4)) == [b"0", b"1", b"2", b"3"]
        assert [request.offset for request in broker.requests] == [0, 1, 2, 3]
    assert waits == [100, 100, 100]


def broken(_request: broker_pb2.PullRequest, context: grpc.ServicerContext) -> Iterator[object]:
    """Yields nothing and aborts."""
    yield from ()
    context.abort(grpc.StatusCode.INTERNAL, "broken")


def test_k03_fruitless_calls_are_retried_with_doubling_waits(waits: list[int]) -> None:
    with scripted_broker(broken) as broker:  # type: ignore[arg-type]
        pull = Pull(broker.config, retries=RetryPolicy(8, 100))
        with pytest.raises(ConnectionFailedError, match="INTERNAL: broken"):
            bodies(batches(pull, 4))
        assert len(broker.requests) == 9
    assert waits == [100, 200, 400, 800, 1600, 3200, 5000, 5000]


def test_k03_a_call_that_ends_without_an_answer_is_a_fault(waits: list[int]) -> None:
    with scripted_broker(always()) as broker:
        pull = Pull(broker.config, retries=RetryPolicy(1, 100))
        with pytest.raises(ConnectionFailedError, match=r"queue 0 of topic 'T': a pull ended with"):
            bodies(batches(pull, 4))
    assert waits == [100]


def test_k03_a_task_whose_rows_are_taken_slowly_outlives_its_calls(waits: list[int]) -> None:
    def answers(
        request: broker_pb2.PullRequest, context: grpc.ServicerContext
    ) -> Iterator[broker_pb2.PullResponse]:
        yield response(stored(request.offset, [b"x"]), next_offset=request.offset + 1)
        context.add_callback((ended := threading.Event()).set)
        ended.wait(WAIT_SECONDS_MAX)

    with scripted_broker(answers) as broker:
        client = dataclasses.replace(broker.config, pull_timeout_ms=1_000)
        pull = Pull(client, retries=RetryPolicy(0, 1))
        assert bodies(batches(pull, 3)) == [b"x"] * 3
        forget_client(client)
    assert waits == []


def endless(sent: list[int]) -> Answers:
    """Returns endless answers of some 256 KiB; `sent` grows by each that gRPC has taken."""

    def answers(
        _request: broker_pb2.PullRequest, context: grpc.ServicerContext
    ) -> Iterator[broker_pb2.PullResponse]:
        for offset in itertools.count():
            if not context.is_active():
                return
            answer = response(stored(offset, [bytes(MIB // 4)]), next_offset=offset + 1)
            yield answer
            sent.append(len(answer.records))

    return answers


def settled(sent: list[int], least: int) -> int:
    """Returns the number of sent bytes: `least` or more, and not grown for 0.3 s."""
    count, pause = -1, threading.Event()
    while count != len(sent) or sum(sent) < least:
        count = len(sent)
        pause.wait(0.3)
    return sum(sent)


@pytest.mark.parametrize("prefetch_bytes_max", [3 * MIB, 12 * MIB])
def test_k03_what_is_fetched_ahead_is_bounded(prefetch_bytes_max: int) -> None:
    sent: list[int] = []
    with scripted_broker(endless(sent)) as broker:
        client = dataclasses.replace(broker.config, prefetch_bytes_max=prefetch_bytes_max)
        pull = Pull(client, fetch_bytes_max=MIB // 4)
        found = batches(pull, 1 << 40)
        next(found)
        # A batch ends once the next record is known, so two responses have been taken.
        ahead = settled(sent, prefetch_bytes_max // 2)
        assert ahead <= prefetch_bytes_max + SOCKET_BYTES_MAX
        found.close()  # type: ignore[attr-defined]
        forget_client(client)


def test_k03_a_limit_ends_the_call() -> None:
    with scripted_broker(endless([])) as broker:
        found = batches(Pull(broker.config), 1 << 40)
        next(found)
        found.close()  # type: ignore[attr-defined]
        assert broker.calls_ended.acquire(timeout=WAIT_SECONDS_MAX)


def test_only_wanted_columns_are_decoded() -> None:
    count, tag = 100, "x" * 20_000
    records = [Record("T", 0, b"", {"TAGS": tag}, queue_offset=n) for n in range(count)]
    queue = GivenRecords(tuple(encode_record(record) for record in records))
    config = ReadConfig(queue, PullOptions("group", 4 * MIB, True), MessageFilter())

    def peak_bytes(*names: str) -> int:
        tracemalloc.start()
        schema = pa.schema([pa.field(name, COLUMN_TYPES[name]) for name in names])
        [batch] = read_ranges(config, (QueueRange("T", 0, 0, count),), schema)
        assert batch.schema == schema
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    names = ["queueOffset", "body", "topic", "storeTimestamp", "offsetMsgId", "bornHost"]
    peak_bytes(*names, "tags")
    # Properties are copied to be parsed.
    assert peak_bytes(*names, "tags") - peak_bytes(*names) > count * len(tag) // 2

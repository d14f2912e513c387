"""Brokers of a cluster with answers that contradict themselves or the request."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import cast

import pyarrow as pa
import pytest

from pyspark_rocketpy.errors import (
    BrokerError,
    ConnectionFailedError,
    DataLossError,
    OffsetError,
    RocketpyError,
)
from pyspark_rocketpy.offsets import QueueRange
from pyspark_rocketpy.source.message_filter import MessageFilter
from pyspark_rocketpy.source.range_reader import ReadConfig, read_ranges
from pyspark_rocketpy.transport.interface import SourceTransport
from pyspark_rocketpy.transport.rebatching import RecordChunk
from pyspark_rocketpy.transport.remoting.pull.offset_queries import RemotingOffsetQueries
from pyspark_rocketpy.transport.remoting.send.markers import ClusterAccess, ControlQueue
from pyspark_rocketpy.transport.values import PullOptions, QueueTime, RetryPolicy
from rocketpy_proto.record import COLUMN_TYPES, Record, encode_record
from rocketpy_proto.remoting import RemotingCommand, RequestCode, ResponseCode
from rocketpy_proto.remoting.headers.offsets import OffsetResponse
from rocketpy_proto.remoting.headers.pulls import PullMessageResponse
from tests.unit.connector.transport.remoting.pull_setup import (
    BROKER,
    LIMITS,
    OPTIONS,
    PullSetup,
)
from tests.unit.connector.transport.remoting.scripted_cluster import TOPIC
from tests.unit.connector.transport.remoting.scripted_peer import PATIENT, answering, success
from tests.unit.connector.transport.remoting.scripted_queue import ScriptedQueue

SCHEMA = pa.schema([pa.field("body", COLUMN_TYPES["body"], nullable=False)])
QUEUE = ScriptedQueue(100)
PART = QueueRange(TOPIC, 0, 0, 32, broker_name=BROKER)
WHOLE = replace(PART, end=100)
Pulled = Callable[[RemotingCommand], RemotingCommand]
Reading = Callable[[PullSetup, PullOptions], list[bytes]]


@dataclass(frozen=True)
class Transport:
    """The pulls of a setup."""

    setup: PullSetup

    def pull(self, part: QueueRange, options: PullOptions) -> Generator[RecordChunk]:
        return self.setup.puller(part.begin, part.end, options).chunks()


def rows(pulls: PullSetup, options: PullOptions, part: QueueRange = PART) -> list[bytes]:
    """Returns the bodies of a range, as a task reads them."""
    wanted = MessageFilter(tags=options.tags or None)
    options = replace(options, tags_codes=wanted.tags_codes)
    config = ReadConfig(cast("SourceTransport", Transport(pulls)), options, wanted)
    batches = read_ranges(config, (part,), SCHEMA)
    return [body for batch in batches for body in batch["body"].to_pylist()]


def looked_back(pulls: PullSetup, options: PullOptions) -> list[bytes]:
    """Returns the bodies of a range, as a sink searches for stored messages."""
    reach = ClusterAccess(pulls.cluster, RetryPolicy(1, 1), PATIENT, LIMITS)
    tag = options.tags[0] if options.tags else None
    return [b"" for block in reach.records(PART, "group", tag) for _ in range(len(block))]


def pulled(header: PullMessageResponse, body: bytes = b"") -> Pulled:
    """Answers every pull with this header and body."""
    return lambda request: success(request, header, body)


def records(queue: ScriptedQueue) -> bytes:
    return b"".join(map(queue.record, range(32)))


def of_topic(topic: bytes) -> bytes:
    return records(QUEUE).replace(bytes([len(TOPIC)]) + TOPIC.encode(), topic)


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
@pytest.mark.parametrize("tags", [(), ("even",)])
@pytest.mark.parametrize("read", [rows, looked_back])
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(pulled(PullMessageResponse(0, 32, 0, 100)), id="found nothing"),
        pytest.param(pulled(PullMessageResponse(0, 1 << 60, 0, 100)), id="nothing of all"),
        pytest.param(
            pulled(PullMessageResponse(0, 32, 0, 100), of_topic(b"\x09TopicTesu")), id="topic"
        ),
        pytest.param(
            pulled(PullMessageResponse(0, 32, 0, 100), records(ScriptedQueue(100, queue_id=1))),
            id="queue",
        ),
        pytest.param(
            pulled(PullMessageResponse(0, 0, 0, 100), records(QUEUE)), id="a step that stands still"
        ),
        pytest.param(
            pulled(PullMessageResponse(0, -7, 0, 100), records(QUEUE)), id="a step backwards"
        ),
    ],
)
def test_a_wrong_answer_is_an_error_whatever_the_options_say(
    pulls: PullSetup,
    read: Reading,
    answer: Pulled,
    tags: tuple[str, ...],
    *,
    fail_on_data_loss: bool,
) -> None:
    pulls.route(id_0=answering(answer))
    options = replace(OPTIONS, fail_on_data_loss=fail_on_data_loss, tags=tags)
    with pytest.raises(RocketpyError) as caught:
        read(pulls, options)
    assert isinstance(caught.value, OffsetError | ConnectionFailedError)
    assert getattr(caught.value, "is_lasting", True), "nobody waits for another answer"


@pytest.mark.parametrize(
    ("code", "next_offset"),
    [(ResponseCode.PULL_RETRY_IMMEDIATELY, 100), (ResponseCode.PULL_NOT_FOUND, 40)],
)
def test_offsets_that_a_broker_passes_over_without_a_filter_are_a_loss(
    pulls: PullSetup, code: ResponseCode, next_offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(request: RemotingCommand) -> RemotingCommand:
        if request.ext_fields["queueOffset"] != "0":
            return QUEUE.answer(request)
        header = success(request, PullMessageResponse(0, next_offset, 0, 100)).ext_fields
        return request.answer(code, ext_fields=header, remark="NO_MATCHED_MESSAGE")

    pulls.route(id_0=answering(answer))
    with pytest.raises(DataLossError, match=rf"{next_offset} messages are gone.*NO_MATCHED_MESS"):
        rows(pulls, OPTIONS, WHOLE)
    left = [b"%d" % offset for offset in range(next_offset, 100)]
    assert rows(pulls, replace(OPTIONS, fail_on_data_loss=False), WHOLE) == left
    assert f"{next_offset} messages are gone" in caplog.text


def test_too_few_records_are_a_loss(pulls: PullSetup, caplog: pytest.LogCaptureFixture) -> None:
    pulls.route(id_0=answering(pulled(PullMessageResponse(0, 100, 0, 100), records(QUEUE))))
    with pytest.raises(DataLossError, match=r"offsets \[32, 100\).* 68 messages are gone"):
        rows(pulls, OPTIONS, WHOLE)
    found = rows(pulls, replace(OPTIONS, fail_on_data_loss=False), WHOLE)
    assert found == [b"%d" % offset for offset in range(32)]
    assert "68 messages are gone" in caplog.text


def test_a_search_believes_no_record_that_was_not_asked_for(pulls: PullSetup) -> None:
    strange = [
        (b"", 1),
        (b"x" * 200, 1),
        (QUEUE.record(7)[:-20], 8),
        (QUEUE.record(6), 8),
        (QUEUE.record(8), 8),
        (ScriptedQueue(100, queue_id=1).record(7), 8),
        (QUEUE.record(7).replace(b"TopicTest", b"TopicTesu"), 8),
    ]
    for body, next_offset in strange:

        def answer(
            request: RemotingCommand, body: bytes = body, next_offset: int = next_offset
        ) -> RemotingCommand:
            if request.code == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
                return success(request, OffsetResponse(7))
            if request.ext_fields["queueOffset"] == "7":
                return success(request, PullMessageResponse(0, next_offset, 0, 100), body)
            return QUEUE.answer(request)

        pulls.route(id_0=answering(answer))
        pulls.cluster._routes.doubt(TOPIC)
        queries = RemotingOffsetQueries(pulls.cluster, RetryPolicy(1, 1), "group", PATIENT)
        with pytest.raises(ConnectionFailedError, match="pull from offset 7") as caught:
            queries.search([QueueTime(TOPIC, 0, 1_007, BROKER)])
        assert caught.value.is_lasting


@pytest.mark.parametrize("told", [101, 5_000, (1 << 63) - 1])
def test_a_search_beyond_the_end_hides_nothing(pulls: PullSetup, told: int) -> None:
    def answer(request: RemotingCommand) -> RemotingCommand:
        if request.code == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
            return success(request, OffsetResponse(told))
        return QUEUE.answer(request)

    pulls.route(id_0=answering(answer))
    queries = RemotingOffsetQueries(pulls.cluster, RetryPolicy(1, 1), "group", PATIENT)
    times = [QueueTime(TOPIC, 0, ms, BROKER) for ms in (0, 1_050, 1_099, 1_100)]
    assert queries.search(times) == [0, 50, 99, None]


@pytest.mark.parametrize("body", [b"0", b"{", b"\xff", b"[" * 10_000, b'{"topic":1}', b""])
def test_what_is_no_marker_is_named_by_its_place(pulls: PullSetup, body: bytes) -> None:
    """Stores a message of another client, with a task's tag, in the control topic."""
    stored = Record(TOPIC, 0, body, {"TAGS": "task"}, queue_offset=0)
    header = PullMessageResponse(0, 1, 0, 1)
    pulls.route(id_0=answering(pulled(header, encode_record(stored))))
    reach = ClusterAccess(pulls.cluster, RetryPolicy(1, 1), PATIENT, LIMITS)
    with pytest.raises(BrokerError, match=f"control topic {TOPIC} holds no marker at offset 0: "):
        list(ControlQueue(reach, TOPIC, "writer").earlier("task", 0, 1))

"""Records of answers, and chunks that join, for all answers of brokers."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_rocketpy.offsets import QueueRange
from pyspark_rocketpy.transport.remoting.cluster.client import Cluster
from pyspark_rocketpy.transport.remoting.cluster.records import records_of
from pyspark_rocketpy.transport.remoting.net.calls import ClusterConfig
from pyspark_rocketpy.transport.remoting.net.connections import Connections
from pyspark_rocketpy.transport.remoting.pull.range_puller import PullLimits, RangePuller
from pyspark_rocketpy.transport.values import PullOptions
from rocketpy_proto.record import RecordError
from rocketpy_proto.remoting import RemotingCommand
from tests.support.blocks import bodies_of
from tests.unit.connector.transport.remoting.scripted_cluster import TOPIC, Knowledge, route_with
from tests.unit.connector.transport.remoting.scripted_peer import PATIENT, ScriptedPeer, answering
from tests.unit.connector.transport.remoting.scripted_queue import ScriptedQueue, backwards

LIMITS = PullLimits(64, 32 << 20, PATIENT, outage_ms_max=60_000, backoff_ms=1)


def bodies(*parts: range) -> list[memoryview]:
    queue = ScriptedQueue(10_000)
    return [memoryview(b"".join(map(queue.record, part))) for part in parts]


def test_records_of_several_answers_are_as_if_of_one() -> None:
    records = records_of(bodies(range(3, 9), range(9, 10), range(10, 40)), 0)
    assert records.is_in(3, 40, is_gapless=True)
    assert not records.is_in(3, 41, is_gapless=True)
    assert records.is_in(3, 41, is_gapless=False)
    assert not records.is_in(4, 40, is_gapless=False)
    assert records.offsets.tolist() == list(range(3, 40))
    assert bodies_of(bytes(records.data), records.sizes) == [b"%d" % n for n in range(3, 40)]
    part = records.within(5, 7)
    assert bodies_of(bytes(part.data), part.sizes) == [b"5", b"6"]
    assert records.within(50, 60).runs() == []


def test_runs_are_told_by_their_places() -> None:
    records = records_of(bodies(range(3), range(5, 6), range(9, 12)), 0)
    assert records.runs() == [(0, 3), (3, 4), (4, 7)]


@given(
    st.integers(0, 400),
    st.data(),
)
def test_no_bytes_are_taken_for_records_that_are_none(place: int, data: st.DataObject) -> None:
    """Asserts that a changed byte is an error or leaves records that fill the bytes in order."""
    (body,) = bodies(range(4))
    spoiled = bytearray(body)
    spoiled[place % len(spoiled)] = data.draw(st.integers(0, 255))
    try:
        records = records_of([memoryview(bytes(spoiled))], 0)
    except RecordError:
        return
    assert sum(records.sizes.tolist()) == len(body)
    assert sorted(set(records.offsets.tolist())) == records.offsets.tolist()


@pytest.mark.parametrize("size", [0, 1, 4, 90])
def test_what_is_too_short_for_a_record_is_none(size: int) -> None:
    with pytest.raises(RecordError):
        records_of([memoryview(b"\0" * size or b"\0")], 0)


@dataclass
class Moody:
    """A queue with answers of the lengths of a list, over and over."""

    queue: ScriptedQueue
    lengths: list[int]
    answered: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def answer(self, request: RemotingCommand) -> RemotingCommand:
        with self._lock:
            self.queue.messages_max = self.lengths[self.answered % len(self.lengths)]
            self.answered += 1
            return self.queue.answer(request)


@settings(max_examples=25, deadline=None)
@given(
    begin=st.integers(0, 100),
    count=st.integers(1, 1_500),
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    missing=st.frozensets(st.integers(0, 1_600), max_size=12),
    pulls_max=st.integers(1, 20),
    tags=st.sampled_from([(), ("even",), ("even", "odd")]),
    is_backwards=st.booleans(),
)
def test_every_message_of_a_range_comes_once_and_in_order(
    begin: int,
    count: int,
    lengths: list[int],
    missing: frozenset[int],
    pulls_max: int,
    tags: tuple[str, ...],
    is_backwards: bool,
) -> None:
    queue = ScriptedQueue(1_700, missing=missing)
    moody = Moody(queue, lengths)
    options = PullOptions(
        "group", 1 << 16, fail_on_data_loss=False, tags_codes=(1,) * bool(tags), tags=tags
    )
    names, connections = Knowledge(), Connections()
    script = (backwards if is_backwards else answering)(moody.answer)
    with ScriptedPeer(script) as broker, ScriptedPeer(answering(names.answer)) as name_server:
        names.routes[TOPIC] = route_with("broker-a", id_0=broker.address)
        config = ClusterConfig((name_server.address,), PATIENT, PATIENT)
        end = begin + count
        part = QueueRange(TOPIC, 0, begin, end, broker_name="broker-a")
        limits = replace(LIMITS, pulls_max=pulls_max)
        try:
            found: list[int] = []
            puller = RangePuller(Cluster(config, connections), limits, options, part)
            with closing(puller.chunks()) as chunks:
                for chunk in chunks:
                    found += map(int, bodies_of(bytes(chunk.records), chunk.sizes))
        finally:
            connections.close()
    wanted = [n for n in range(begin, end) if n not in missing]
    assert found == [n for n in wanted if not tags or queue.tag(n) in tags]

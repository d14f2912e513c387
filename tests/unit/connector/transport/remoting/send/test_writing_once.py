"""Effectively once: an attempt leaves out rows that attempts before it have stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import BrokerError, ColumnError, RocketpyError
from pyspark_rocketpy.sink.task_writer import WriteConfig, write_batches
from pyspark_rocketpy.transport.remoting.cluster.client import _clusters
from pyspark_rocketpy.transport.remoting.net.calls import ClusterConfig
from pyspark_rocketpy.transport.remoting.net.connections import SHARED
from pyspark_rocketpy.transport.remoting.sink import RemotingTransport
from pyspark_rocketpy.transport.values import RetryPolicy
from pyspark_rocketpy.transport.write_values import BatchName
from rocketpy_proto.remoting import ResponseCode
from tests.unit.connector.transport.remoting.conftest import Peers
from tests.unit.connector.transport.remoting.logged_store import LoggedStore
from tests.unit.connector.transport.remoting.scripted_cluster import TOPIC, Knowledge, route_of
from tests.unit.connector.transport.remoting.scripted_peer import PATIENT, answering
from tests.unit.connector.transport.remoting.scripted_store import Fault, Refuse, Script

CONTROL = "rocketpy_control"
# Sends without an answer wait that long.
SEND_MS = 1_000
BUSY = Refuse(ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy")
ERROR = Refuse(ResponseCode.NO_PERMISSION, "no more")


class Setup:
    """A cluster of one broker, and a sink's transport."""

    def __init__(self, peers: Peers) -> None:
        self.store = LoggedStore(TOPIC)
        route = route_of(a=peers(self.store.script).address)
        self.names = Knowledge({TOPIC: route, CONTROL: route})
        config = ClusterConfig((peers(answering(self.names.answer)).address,), PATIENT, PATIENT)
        self.transport = RemotingTransport(config, RetryPolicy(2, 1), SEND_MS, CONTROL)

    def write(
        self, *bodies: bytes, batch_id: int = 1, partition: int = 0, floor: int | None = None
    ) -> bytes:
        """Writes one attempt at a task; returns its part of the commit."""
        transport = RemotingTransport(
            self.transport.cluster, self.transport.retries, SEND_MS, CONTROL, floor
        )
        rows = pa.record_batch(
            {
                "body": pa.array(bodies, pa.binary()),
                "queueId": pa.array([0] * len(bodies), pa.int32()),
            }
        )
        config = WriteConfig(transport, TOPIC, ("body", "queueId"), 1_024, 7, has_keys_of_rows=True)
        return write_batches(config, iter([rows]), BatchName("query", batch_id), partition).part

    def write_rows(
        self, *rows: tuple[str, str | None, dict[str, str]], topics: Sequence[str] = ()
    ) -> None:
        """Writes one attempt at the same task, with these bodies, tags and properties."""
        kind = pa.map_(pa.string(), pa.string())
        bodies, tags, properties = zip(*rows, strict=True)
        columns = {
            "body": pa.array(bodies),
            "tags": pa.array(tags, pa.string()),
            "properties": pa.array([list(each.items()) for each in properties], kind),
            "queueId": pa.array([0] * len(rows)),
            "topic": pa.array(topics or [TOPIC] * len(rows)),
        }
        config = WriteConfig(self.transport, None, tuple(columns), 1_024, 7, has_keys_of_rows=True)
        write_batches(config, iter([pa.record_batch(columns)]), BatchName("query", 1), 0)

    def tags(self, topic: str = TOPIC) -> list[str]:
        return sorted(record.properties["TAGS"] for record in self.store.records[topic, 0])

    def markers(self) -> int:
        return len(self.store.records[CONTROL, 0])


@pytest.fixture
def setup(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setup]:
    """Yields the cluster; waits end at once."""
    monkeypatch.setattr(clock, "sleep_ms", lambda _: None)
    yield Setup(peers)
    SHARED.close()
    _clusters.clear()


MANY = [b"%d" % number + b"." * 200 for number in range(40)]


def test_a_task_that_runs_again_stores_nothing_twice(setup: Setup) -> None:
    part = setup.write(*MANY)
    assert setup.write(*MANY) == part
    assert setup.store.bodies(TOPIC) == MANY
    assert setup.markers() == 2


def test_a_task_that_failed_goes_on_where_it_was(setup: Setup) -> None:
    setup.store.faults = [Fault.NONE, Fault.NONE, ERROR]
    with pytest.raises(BrokerError, match="no more"):
        setup.write(*MANY)
    stored = setup.store.bodies(TOPIC)
    assert 0 < len(stored) < len(MANY)
    setup.write(*MANY)
    assert setup.store.bodies(TOPIC) == MANY


def test_attempts_after_attempts_add_up(setup: Setup) -> None:
    for count in (1, 2, 3):
        setup.store.faults = [*[Fault.NONE] * count, ERROR]
        with pytest.raises(BrokerError, match="no more"):
            setup.write(*MANY)
    setup.write(*MANY)
    assert setup.store.bodies(TOPIC) == MANY
    assert setup.markers() == 4


@pytest.mark.parametrize("fault", [Fault.LOSE, Fault.SILENCE, Fault.DROP, BUSY])
def test_a_send_whose_answer_is_lost_is_looked_for_before_it_is_repeated(
    setup: Setup, fault: Script
) -> None:
    setup.store.faults = [Fault.NONE, fault, Fault.NONE, fault]
    setup.write(*MANY)
    assert setup.store.bodies(TOPIC) == MANY


def test_rows_of_other_tasks_batches_and_writers_are_no_copies(setup: Setup) -> None:
    setup.write(b"a", b"b")
    setup.write(b"a", b"b", partition=1)
    setup.write(b"a", b"b", batch_id=2)
    assert setup.store.bodies(TOPIC) == [b"a", b"b"] * 3


def test_rows_that_come_in_another_order_are_not_lost(setup: Setup) -> None:
    setup.write(b"a", b"b", b"c")
    setup.write(b"a", b"c", b"b")
    assert setup.store.bodies(TOPIC) == [b"a", b"b", b"c", b"c", b"b"]


def test_rows_of_the_same_body_that_change_places_are_not_lost(setup: Setup) -> None:
    """Asserts that rows are also identified by tags and properties."""
    setup.write_rows(("x", "A", {}))
    setup.write_rows(("x", "B", {}), ("x", "A", {}))
    assert set(setup.tags()) == {"A", "B"}
    setup.write_rows(("x", "B", {"p": "1"}), ("x", "A", {}))
    found = [record.properties.get("p") for record in setup.store.records[TOPIC, 0]]
    assert found.count("1") == 1


def test_rows_that_go_to_another_topic_are_not_lost(setup: Setup) -> None:
    setup.names.routes["Other"] = setup.names.routes[TOPIC]
    setup.write_rows(("x", "A", {}))
    setup.write_rows(("x", "A", {}), ("x", "A", {}), topics=["Other", TOPIC])
    assert setup.tags("Other") == ["A"]


def test_what_a_broker_adds_makes_no_other_row(setup: Setup) -> None:
    rows = [("x", "A", {"p": "1", "q": "2"}), ("y", None, {})]
    setup.write_rows(*rows)
    for number, record in enumerate(setup.store.records[TOPIC, 0]):
        added = {"CLUSTER": "C", "MSG_REGION": "R", "TRACE_ON": "true", **record.properties}
        kept = dict(reversed(added.items()))
        setup.store.records[TOPIC, 0][number] = replace(record, properties=kept)
    setup.write_rows(*rows)
    assert setup.store.bodies(TOPIC) == [b"x", b"y"]


def test_a_commit_notes_where_its_markers_begin(setup: Setup) -> None:
    parts = [setup.write(b"a", b"b"), setup.write(b"c", partition=1)]
    committed = setup.transport.commit_batch(parts, 1)
    assert (committed.batch_id, committed.is_own, committed.record_count) == (1, True, 3)
    assert list(setup.store.notes.values()) == [0]
    setup.transport.commit_batch([setup.write(b"d", batch_id=2)], 2)
    assert list(setup.store.notes.values()) == [2]
    setup.store.pulled_from.clear()
    setup.write(b"e", batch_id=3)
    assert setup.store.pulled_from == [2], "markers before the last batch are not read"


@pytest.mark.parametrize("batches_before", [0, 2])
def test_a_batch_that_was_committed_is_left_out_whenever_it_comes_again(
    setup: Setup, batches_before: int
) -> None:
    """Repeats a batch, as after a driver's end between the sink's commit and Spark's."""
    for batch_id in range(batches_before):
        setup.transport.commit_batch([setup.write(b"before", batch_id=batch_id)], batch_id)
    before = setup.store.bodies(TOPIC)
    for _ in range(4):
        parts = [setup.write(*MANY, batch_id=5), setup.write(b"z", batch_id=5, partition=1)]
        setup.transport.commit_batch(parts, 5)
        assert setup.store.bodies(TOPIC) == [*before, *MANY, b"z"]
    setup.transport.commit_batch([setup.write(*MANY, batch_id=6)], 6)
    assert setup.store.bodies(TOPIC) == [*before, *MANY, b"z", *MANY]


def test_a_batch_that_comes_again_finds_rows_of_attempts_that_failed_first(setup: Setup) -> None:
    """Asserts that the rows before the last attempt's marker are found."""
    setup.store.faults = [Fault.NONE, Fault.NONE, ERROR]
    with pytest.raises(BrokerError, match="no more"):
        setup.write(*MANY)
    for _ in range(3):
        setup.transport.commit_batch([setup.write(*MANY)], 1)
    assert setup.store.bodies(TOPIC) == MANY


def test_a_batch_without_rows_keeps_the_note(setup: Setup) -> None:
    setup.transport.commit_batch([setup.write(b"a", b"b")], 1)
    setup.transport.commit_batch([setup.write(b"c", batch_id=2)], 2)
    noted = dict(setup.store.notes)
    for _ in range(2):
        empty = [setup.write(batch_id=3), setup.write(batch_id=3, partition=1)]
        assert setup.transport.commit_batch(empty, 3).record_count == 0
        assert setup.transport.commit_batch([], 3).record_count == 0
    assert setup.store.notes == noted
    setup.write(b"c", batch_id=2)
    assert setup.store.bodies(TOPIC) == [b"a", b"b", b"c"]


def test_a_control_topic_that_was_made_again_is_read_from_its_begin(setup: Setup) -> None:
    """Keeps the broker's note of the former topic, which is beyond all markers."""
    for batch_id in range(3):
        setup.transport.commit_batch([setup.write(b"x", batch_id=batch_id)], batch_id)
    setup.store.records[CONTROL, 0].clear()
    setup.write(*MANY, batch_id=4)
    for _ in range(2):
        setup.transport.commit_batch([setup.write(*MANY, batch_id=4)], 4)
    assert setup.store.bodies(TOPIC) == [b"x"] * 3 + MANY
    assert list(setup.store.notes.values()) == [0]


def test_a_single_job_looks_from_where_it_was_planned(setup: Setup) -> None:
    for batch_id in range(5):
        setup.write(b"x", batch_id=batch_id)
    single = setup.transport.prepared(TOPIC, is_single=True)
    assert single.control_floor == 5
    setup.store.pulled_from.clear()
    part = setup.write(b"a", batch_id=9, floor=5)
    assert setup.store.pulled_from == []
    setup.write(b"a", batch_id=9, floor=5)
    assert setup.store.bodies(TOPIC).count(b"a") == 1
    assert single.commit_batch([part], 9).record_count == 1
    assert setup.store.notes == {}


def test_a_query_is_prepared_without_a_floor(setup: Setup) -> None:
    assert setup.transport.prepared(None, is_single=False).control_floor is None


def test_a_control_topic_at_two_brokers_is_refused(setup: Setup, peers: Peers) -> None:
    address = peers(setup.store.script).address
    setup.names.routes[CONTROL] = route_of(a=address, b=address)
    with pytest.raises(BrokerError, match="controlTopic is 'rocketpy_control', which is at 2"):
        setup.transport.prepared(TOPIC, is_single=False)
    del setup.names.routes[CONTROL]
    with pytest.raises(RocketpyError):
        setup.write(b"a")


def test_rows_that_wait_are_refused(setup: Setup) -> None:
    rows = pa.record_batch({"body": pa.array([b"a"]), "delayLevel": pa.array([1])})
    config = WriteConfig(setup.transport, TOPIC, ("body", "delayLevel"), 1_024, 7)
    with pytest.raises(ColumnError, match="cannot be used with delivery effectively-once"):
        write_batches(config, iter([rows]), BatchName("query", 1), 0)


def test_what_is_found_needs_no_answer(setup: Setup) -> None:
    setup.store.faults = [Fault.SILENCE] * 5
    setup.write(b"a", b"b")
    assert setup.store.bodies(TOPIC) == [b"a", b"b"]
    assert len(setup.store.faults) == 4

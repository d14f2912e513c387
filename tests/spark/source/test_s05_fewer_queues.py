"""Topics with fewer queues for a while, and topics unread for a while.

The tests call the reader's methods as Spark does, with a real broker and without a session.
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from pyspark_rocketpy.errors import DataLossError
from pyspark_rocketpy.source.readers import RocketpyStreamReader
from rocketpy_broker import LocalBroker
from tests.spark.source.test_s09_topic_made_again import rows
from tests.spark.source.test_stream_reader import planned, reader, send
from tests.spark.source.test_stream_reader import topic as topic  # noqa: PLC0414 (a fixture)


class Query:
    """A query as Spark drives it: offsets pass through JSON; each batch is read and committed."""

    def __init__(
        self, broker: LocalBroker, topic: str, *, restarts: bool, **options: object
    ) -> None:
        self._broker, self._topic, self._restarts = broker, topic, restarts
        self._options = options
        self.restart()
        self.offset: dict[str, Any] = self.source.initialOffset()

    def restart(self, **options: object) -> None:
        """Starts a new process of the query, with these options set."""
        self._options.update(options)
        self.source = reader(self._broker, self._topic, **self._options)

    def batch(self) -> list[bytes]:
        """Returns the bodies of the next micro-batch; an empty list without one."""
        if self._restarts:
            self.restart()
        start = json.loads(json.dumps(self.offset))
        end = json.loads(json.dumps(self.source.latestOffset(start, _limit(self.source))))
        if end == start:
            return []
        found = list(rows(self.source, self.source.partitions(start, end)))
        self.offset = end
        self.source.commit(end)
        return found


def _limit(source: RocketpyStreamReader) -> Any:
    return source.getDefaultReadLimit()


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("restarts", [True, False])
def test_s5_a_topic_with_fewer_queues_for_a_while_is_read_once(
    rocketpy_broker: LocalBroker, topic: str, restarts: bool, fails: bool
) -> None:
    send(rocketpy_broker, topic, b"a0")
    send(rocketpy_broker, topic, b"b0", queue_id=1)
    query = Query(rocketpy_broker, topic, restarts=restarts, failOnDataLoss=fails)
    assert query.batch() == [b"a0", b"b0"]
    for number in range(1, 3):
        rocketpy_broker.update_topic(topic, queues=1)
        send(rocketpy_broker, topic, b"a%d" % number)
        assert query.batch() == [b"a%d" % number]
        assert query.batch() == []
        rocketpy_broker.update_topic(topic, queues=2)
        assert query.batch() == []
        send(rocketpy_broker, topic, b"b%d" % number, queue_id=1)
        assert query.batch() == [b"b%d" % number]


def test_s5_unread_messages_of_a_hidden_queue_are_named_or_read_later(
    rocketpy_broker: LocalBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    send(rocketpy_broker, topic, b"b0", queue_id=1)
    query = Query(rocketpy_broker, topic, restarts=False)
    assert query.batch() == [b"b0"]
    send(rocketpy_broker, topic, b"b1", b"b2", queue_id=1)
    rocketpy_broker.update_topic(topic, queues=1)
    send(rocketpy_broker, topic, b"a0")
    words = rf"offsets \[1, 3\) of queue 1 of topic '{topic}' are out of reach: .*readQueueNums"
    for _ in range(2):
        with pytest.raises(DataLossError, match=words):
            query.batch()
        query.restart()
    query.restart(failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert query.batch() == [b"a0"]
        assert query.batch() == []
        send(rocketpy_broker, topic, b"a1")
        assert query.batch() == [b"a1"]
    assert caplog.text.count("2 messages are read when the topic has its queues again") == 1
    query.restart(failOnDataLoss="true")
    rocketpy_broker.update_topic(topic, queues=2)
    assert query.batch() == [b"b1", b"b2"]
    assert query.batch() == []


@pytest.mark.parametrize("fails", [True, False])
def test_s5_a_planned_batch_whose_queue_is_hidden_is_named_or_read(
    rocketpy_broker: LocalBroker, topic: str, fails: bool
) -> None:
    source = reader(rocketpy_broker, topic, failOnDataLoss=fails)
    start = source.initialOffset()
    send(rocketpy_broker, topic, b"a0")
    send(rocketpy_broker, topic, b"b0", queue_id=1)
    end = source.latestOffset(start, _limit(source))
    rocketpy_broker.update_topic(topic, queues=1)
    words = f"offsets [0, 1) of queue 1 of topic '{topic}' are out of reach"
    if fails:
        with pytest.raises(DataLossError, match=re.escape(words)):
            source.partitions(start, end)
        rocketpy_broker.update_topic(topic, queues=2)
        assert len(planned(source, start, end)) == 2
    else:
        assert list(rows(source, source.partitions(start, end))) == [b"a0", b"b0"]
        rocketpy_broker.update_topic(topic, queues=2)
        assert source.latestOffset(end, _limit(source)) is end


@pytest.mark.parametrize("fails", [True, False])
def test_s5_a_task_reads_its_range_also_where_the_queue_is_hidden_by_then(
    rocketpy_broker: LocalBroker, topic: str, fails: bool
) -> None:
    source = reader(rocketpy_broker, topic, failOnDataLoss=fails)
    start = source.initialOffset()
    send(rocketpy_broker, topic, b"b0", b"b1", queue_id=1)
    end = source.latestOffset(start, _limit(source))
    tasks = source.partitions(start, end)
    rocketpy_broker.update_topic(topic, queues=1)
    assert list(rows(source, tasks)) == [b"b0", b"b1"]
    assert source.latestOffset(end, _limit(source)) is end
    rocketpy_broker.update_topic(topic, queues=2)
    assert source.latestOffset(end, _limit(source)) is end


def test_s5_a_planned_batch_is_read_whole_by_a_query_that_leaves_its_topic_out(
    rocketpy_broker: LocalBroker, topic: str
) -> None:
    other = f"{topic}-other"
    rocketpy_broker.create_topic(other, queues=1)
    both = reader(rocketpy_broker, topic, topicPattern=f"{topic}(-other)?")
    start = both.initialOffset()
    send(rocketpy_broker, topic, b"a0")
    send(rocketpy_broker, other, b"b0")
    end = both.latestOffset(start, _limit(both))
    one = reader(rocketpy_broker, topic, failOnDataLoss=False)
    assert list(rows(one, one.partitions(start, end))) == [b"a0", b"b0"]


@pytest.mark.parametrize("restarts", [True, False])
def test_s5_other_queues_make_progress_while_one_is_hidden(
    rocketpy_broker: LocalBroker, topic: str, restarts: bool
) -> None:
    group = f"{topic}-group"
    send(rocketpy_broker, topic, b"a0")
    send(rocketpy_broker, topic, b"b0", queue_id=1)
    query = Query(rocketpy_broker, topic, restarts=restarts, consumerGroup=group)
    query.batch()
    rocketpy_broker.update_topic(topic, queues=1)
    send(rocketpy_broker, topic, b"a1", b"a2")
    assert query.batch() == [b"a1", b"a2"]
    assert query.batch() == []
    assert query.source.reportLatestOffset()["lag"] == {topic: {"0": 0}}
    places = rocketpy_broker.lag(topic, group).queues
    assert {each.queue_id: each.committed_offset for each in places}[0] == 3
    rocketpy_broker.update_topic(topic, queues=2)
    assert query.batch() == []
    assert query.source.reportLatestOffset()["lag"] == {topic: {"0": 0, "1": 0}}
    places = rocketpy_broker.lag(topic, group).queues
    assert {each.queue_id: each.committed_offset for each in places} == {0: 3, 1: 1}


@pytest.mark.parametrize("fails", [True, False])
def test_s5_available_now_goes_on_at_the_places_of_hidden_queues(
    rocketpy_broker: LocalBroker, topic: str, fails: bool
) -> None:
    send(rocketpy_broker, topic, b"b0", queue_id=1)
    query = Query(rocketpy_broker, topic, restarts=False, failOnDataLoss=fails)
    found = []
    for queues in (2, 1, 2, 1, 2):
        rocketpy_broker.update_topic(topic, queues=queues)
        send(rocketpy_broker, topic, b"a")
        query.restart()
        query.source.prepareForTriggerAvailableNow()
        found += query.batch()
        assert query.batch() == []
    assert found == [b"a", b"b0", *[b"a"] * 4]


@pytest.mark.parametrize("bodies", [(b"c0",), (b"c0", b"c1"), (b"c0", b"c1", b"c2")])
def test_s5_topics_that_a_pattern_leaves_out_for_a_while_are_read_once(
    rocketpy_broker: LocalBroker, topic: str, bodies: tuple[bytes, ...]
) -> None:
    other = f"{topic}-other"
    rocketpy_broker.create_topic(other, queues=1)
    both, one = f"{topic}(-other)?", topic
    send(rocketpy_broker, topic, b"a0")
    send(rocketpy_broker, other, b"b0")
    query = Query(rocketpy_broker, topic, restarts=False, topicPattern=both)
    assert query.batch() == [b"a0", b"b0"]
    query.restart(topicPattern=one, failOnDataLoss="false")
    send(rocketpy_broker, topic, b"a1")
    send(rocketpy_broker, other, b"b1")
    assert query.batch() == [b"a1"]
    assert query.batch() == []
    query.restart(topicPattern=both, failOnDataLoss="true")
    assert query.batch() == [b"b1"]
    query.restart(topicPattern=one, failOnDataLoss="false")
    send(rocketpy_broker, topic, b"a2")
    assert query.batch() == [b"a2"]
    rocketpy_broker.delete_topic(other)
    rocketpy_broker.create_topic(other, queues=1)
    send(rocketpy_broker, other, *bodies)
    query.restart(topicPattern=both, failOnDataLoss="true")
    assert query.batch() == list(bodies)
    assert query.batch() == []


def test_s5_a_topic_whose_configuration_is_lost_for_a_while_is_read_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalBroker(tmp_path) as broker:
        for name in ("T", "U"):
            broker.create_topic(name, queues=1)
            send(broker, name, name.encode())
        options = {"topicPattern": "T|U", "failOnDataLoss": "false"}
        query = Query(broker, "T", restarts=True, **options)
        assert query.batch() == [b"T", b"U"]
        configuration = tmp_path / "config" / "topics.json"
        broker.stop()
        whole = configuration.read_bytes()
        tables = json.loads(whole)
        del tables["topicConfigTable"]["U"]
        configuration.write_text(json.dumps(tables))
        broker.start()
        send(broker, "T", b"T1")
        assert query.batch() == [b"T1"]
        assert query.batch() == []
        assert caplog.text.count("topic 'U' are gone: the topic was deleted") == 1
        broker.stop()
        configuration.write_bytes(whole)
        broker.start()
        assert query.batch() == []
        send(broker, "U", b"U1")
        assert query.batch() == [b"U1"]


def test_s5_a_checkpoint_of_an_earlier_version_goes_on(
    rocketpy_broker: LocalBroker, topic: str
) -> None:
    send(rocketpy_broker, topic, b"a0")
    send(rocketpy_broker, topic, b"b0", queue_id=1)
    query = Query(rocketpy_broker, topic, restarts=True)
    query.batch()
    key = f"{topic}@pyspark-rocketpy"
    query.offset = {
        "v": 1,
        "offsetTable": {key: {"0": 1, "1": 1}},
        "base": {key: {"0": 0, "1": 0}},
    }
    rocketpy_broker.update_topic(topic, queues=1)
    send(rocketpy_broker, topic, b"a1")
    assert query.batch() == [b"a1"]
    assert query.offset["kept"] == {key: {"1": 1}}
    rocketpy_broker.update_topic(topic, queues=2)
    assert query.batch() == []

"""Reads of a live cluster by Spark: messages, offsets, filters and progress."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from rocketpy_broker import LocalBroker
from tests.interop.cluster.cluster import OLD, A, B, Cluster
from tests.interop.cluster.connection import Connection
from tests.interop.cluster.java_clients import mqadmin
from tests.interop.cluster.messages import Queue, committed
from tests.interop.cluster.processes import until
from tests.interop.rocketmq import V5
from tests.interop.spark.queries import OfCluster, places

NAMES = (A, B, OLD)


def test_a_batch_reads_every_queue_of_every_broker(of_cluster: OfCluster) -> None:
    of_cluster.send_to_all("m")
    assert places(of_cluster.read()) == sorted(of_cluster.sent)


def test_a_batch_begins_and_ends_where_options_say(of_cluster: OfCluster) -> None:
    of_cluster.send_to_all("m")
    begin = {of_cluster.topic: {A: {"0": 10}, B: {"1": -1}}}
    end = {of_cluster.topic: {A: {"0": 20, "1": 5}}}
    found = places(
        of_cluster.read(startingOffsets=json.dumps(begin), endingOffsets=json.dumps(end))
    )
    lows, highs = {(A, 0): 10, (B, 1): 50}, {(A, 0): 20, (A, 1): 5}
    assert found == sorted(
        place
        for place in of_cluster.sent
        if lows.get(place[:2], 0) <= place.queue_offset < highs.get(place[:2], 50)
    )


def test_a_time_is_a_position_at_brokers_of_both_versions(of_cluster: OfCluster) -> None:
    of_cluster.send_to_all("early", 5)
    border = max(row[0] for row in of_cluster.read().select("storeTimestamp").collect())
    border_ms = int(border.timestamp() * 1000) + 1
    of_cluster.send_to_all("late", 5)
    late = [place for place in of_cluster.sent if place.body.startswith(b"late")]
    assert places(of_cluster.read(startingTimestamp=border_ms)) == sorted(late)


def test_only_wanted_tags_are_read(of_cluster: OfCluster) -> None:
    wanted = []
    for name in NAMES:
        of_cluster.send(name, "a", "b", properties={"TAGS": "TagC"})
        wanted += of_cluster.send(name, "c", "d", properties={"TAGS": "TagA"})
        of_cluster.send(name, "e", properties={"TAGS": "Other"})
        wanted += of_cluster.send(name, "f", properties={"TAGS": "TagB"})
    assert places(of_cluster.read(filter="TagA || TagB")) == sorted(wanted)


def test_a_stream_goes_on_from_its_checkpoint_which_names_brokers(of_cluster: OfCluster) -> None:
    of_cluster.send_to_all("first")
    of_cluster.run()
    assert of_cluster.streamed() == sorted(of_cluster.sent)
    of_cluster.send_to_all("second", 7)
    of_cluster.run(maxOffsetsPerTrigger=20)
    assert of_cluster.streamed() == sorted(of_cluster.sent)
    logs = sorted((of_cluster.folder / "checkpoint" / "offsets").glob("[0-9]*"), key=_number)
    assert len(logs) > 2
    offset = json.loads(logs[-1].read_text().splitlines()[-1])
    assert offset["v"] == 2
    (table,) = offset["offsetTable"].values()
    assert table == {name: {"0": 57, "1": 57} for name in NAMES}


def _number(path: Path) -> int:
    return int(path.name)


def test_operators_see_how_far_a_query_came(of_cluster: OfCluster, tmp_path: Path) -> None:
    """Runs at brokers of 5: their tool fails at older ones, for any client."""
    of_cluster.send_to_all("m", 9)
    everywhere = f"all-{of_cluster.topic}"[:100]
    of_cluster.run(consumerGroup=everywhere)
    for name in NAMES:
        with Connection(of_cluster.cluster.broker(name).address) as connection:
            answer = committed(connection, everywhere, Queue(of_cluster.topic, 1))
            assert answer.ok().header.offset == 9, name
    of_new = of_cluster.beside("new", A, B)
    of_new.send(A, "a", "b", "c", queue_id=1)
    group = f"g-{of_new.topic}"[:100]
    of_new.run(consumerGroup=group)
    of_new.send(B, "d", "e")
    server = of_new.cluster.name_servers[0]
    # The tool finds the group by the route of its retry topic.
    until(lambda: server.routes(f"%RETRY%{group}").keys() == {A, B}, "a retry topic", [server])
    where = ("-n", server.address, "-g", group)
    shown = mqadmin(V5, tmp_path, "consumerProgress", *where)
    assert "Consume Diff Total: 2" in shown, shown


def test_a_new_query_begins_where_its_group_is(of_cluster: OfCluster) -> None:
    group = f"g-{of_cluster.topic}"[:100]
    of_cluster.send_to_all("m", 4)
    of_cluster.run(consumerGroup=group)
    before = len(of_cluster.sent)
    of_cluster.send_to_all("n", 3)
    found = places(of_cluster.read(consumerGroup=group, startingOffsets="committed"))
    assert found == sorted(of_cluster.sent[before:])
    another = replace(of_cluster, folder=of_cluster.folder / "another")
    another.run(consumerGroup=group, startingOffsets="committed")
    assert another.streamed() == found


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"nameServer": "127.0.0.1:1"}, ["nameServer", "127.0.0.1:1"]),
        ({"topic": "no-such-topic"}, ["no-such-topic"]),
        ({"startingOffsets": '{"T":{"0":1}}'}, ["startingOffsets", "topic 'T'"]),
        ({"accessKey": "k"}, ["accessKey", "secretKey"]),
    ],
)
def test_what_cannot_be_is_one_clear_error(
    of_cluster: OfCluster, given: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(PySparkException) as caught:
        of_cluster.read(**given).collect()
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_broker_of_rocketpy_is_no_name_server(of_cluster: OfCluster, cluster: Cluster) -> None:
    with LocalBroker() as broker, pytest.raises(PySparkException, match="option endpoints"):
        of_cluster.read(nameServer=broker.endpoint).collect()
    options = {"endpoints": cluster.addresses.split(";")[0], "connectTimeout": "2000ms"}
    with pytest.raises(PySparkException, match="endpoints"):
        of_cluster.read(nameServer=None, **options).collect()

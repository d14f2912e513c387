"""Servers that die, freeze, return and join under a running stream."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from tests.interop.cluster.cluster import A, B, Cluster
from tests.interop.cluster.processes import until
from tests.interop.spark.queries import OfCluster
from tests.support.time_limits import WAIT_SECONDS_MAX


def test_s12_a_killed_broker_is_waited_for(of_cluster: OfCluster, fragile_cluster: Cluster) -> None:
    of_cluster.send_to_all("before")
    query = of_cluster.start(maxOffsetsPerTrigger=60)
    fragile_cluster.broker(B).kill()
    of_cluster.send(A, "meanwhile")
    fragile_cluster.heal()
    of_cluster.send(B, "after")
    of_cluster.until_streamed(query)
    query.stop()


def test_s12_others_are_read_on_while_a_broker_is_away(
    of_cluster: OfCluster, fragile_cluster: Cluster
) -> None:
    of_cluster.send_to_all("before", 5)
    query = of_cluster.start()
    of_cluster.until_streamed(query)
    fragile_cluster.broker(B).kill()
    of_cluster.send(A, "meanwhile")
    of_cluster.until_streamed(query)
    fragile_cluster.heal()
    of_cluster.send(B, "after")
    of_cluster.until_streamed(query)
    query.stop()


def test_s12_a_broker_that_is_away_for_too_long_fails_the_query(
    of_cluster: OfCluster, fragile_cluster: Cluster
) -> None:
    of_cluster.send_to_all("before", 5)
    query = of_cluster.start(brokerUnavailableTimeout="3s")
    of_cluster.until_streamed(query)
    fragile_cluster.broker(B).kill()
    with pytest.raises(StreamingQueryException, match=r"(?s)broker-b.*brokerUnavailableTimeout"):
        query.awaitTermination(WAIT_SECONDS_MAX)
    fragile_cluster.heal()
    of_cluster.send(B, "after")
    again = of_cluster.start()
    of_cluster.until_streamed(again)
    again.stop()


def test_s12_a_frozen_name_server_is_passed_over(
    of_cluster: OfCluster, fragile_cluster: Cluster
) -> None:
    of_cluster.send_to_all("before", 5)
    query = of_cluster.start(connectTimeout="5000ms")
    of_cluster.until_streamed(query)
    fragile_cluster.name_servers[0].freeze()
    of_cluster.send(A, "meanwhile")
    of_cluster.until_streamed(query)
    query.stop()
    of_cluster.send(B, "after")
    again = of_cluster.start(connectTimeout="5000ms")
    of_cluster.until_streamed(again)
    again.stop()


def test_s12_nothing_begins_without_a_broker_that_does_not_answer(
    of_cluster: OfCluster, fragile_cluster: Cluster
) -> None:
    """Asserts that nothing starts: a batch would miss messages, a stream would read them late."""
    of_cluster.send_to_all("before", 5)
    address = fragile_cluster.broker(B).address
    fragile_cluster.broker(B).freeze()
    with pytest.raises(PySparkException, match=f"broker {address}.*connectTimeout"):
        of_cluster.read(connectTimeout="5000ms").collect()
    query = of_cluster.start(connectTimeout="5000ms")
    with pytest.raises(StreamingQueryException, match=f"broker {address}.*connectTimeout"):
        query.awaitTermination(WAIT_SECONDS_MAX)
    fragile_cluster.heal()
    of_cluster.run()
    assert of_cluster.missing() == set()


def test_s12_queues_that_are_added_are_read_from_their_begin(
    of_cluster: OfCluster, cluster: Cluster
) -> None:
    of_cluster.send_to_all("before", 5)
    query = of_cluster.start()
    of_cluster.until_streamed(query)
    cluster.create_topic(of_cluster.topic, 4, [cluster.broker(A)])
    of_cluster.send(A, "new queue", queue_id=3)
    of_cluster.until_streamed(query)
    query.stop()


@pytest.mark.parametrize("fails", [True, False])
def test_s12_queues_that_are_hidden_for_a_while_are_read_once(
    of_cluster: OfCluster, cluster: Cluster, fails: bool
) -> None:
    of_cluster.send_to_all("before", 5)
    query = of_cluster.start(failOnDataLoss=str(fails).lower())
    of_cluster.until_streamed(query)
    cluster.create_topic(of_cluster.topic, 1, [cluster.broker(A)])
    until(lambda: "1" not in listed(query, A), "queue 1 is not listed", [])
    of_cluster.send(A, "meanwhile")
    of_cluster.until_streamed(query)
    cluster.create_topic(of_cluster.topic, 2, [cluster.broker(A)])
    of_cluster.send(A, "after", queue_id=1)
    of_cluster.until_streamed(query)
    query.stop()


def listed(query: StreamingQuery, broker_name: str) -> set[str]:
    """Returns the queues of one broker in the query's last report; it has one after a batch."""
    until(lambda: query.lastProgress is not None, "reported", [])
    progress = query.lastProgress
    assert progress is not None
    report = progress["sources"][0]["latestOffset"]
    [table] = (json.loads(report) if isinstance(report, str) else report)["offsetTable"].values()
    return set(table[broker_name])


def test_s12_a_broker_that_joins_is_read_from_its_begin(
    of_cluster: OfCluster, fragile_cluster: Cluster
) -> None:
    """Creates a topic at the broker while the stream runs."""
    joining = of_cluster.beside("joined", A)
    joining.send(A, "before")
    query = joining.start()
    joining.until_streamed(query)
    fragile_cluster.create_topic(joining.topic, brokers=[fragile_cluster.broker(B)])
    joining.send(B, "from b")
    joining.until_streamed(query)
    query.stop()

"""Lost messages on a live cluster: reported, or skipped by option."""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException

from rocketpy_proto.remoting import RequestCode
from rocketpy_proto.remoting.headers.topics import TopicRequest
from tests.interop.cluster.cluster import A, B, Cluster
from tests.interop.cluster.connection import Connection
from tests.interop.spark.queries import OfCluster
from tests.support.time_limits import WAIT_SECONDS_MAX


def make_again(of_cluster: OfCluster, cluster: Cluster) -> None:
    """Deletes the topic at one broker and recreates it there: its queues start at 0."""
    broker = cluster.broker(A)
    with Connection(broker.address) as connection:
        header = TopicRequest(of_cluster.topic)
        connection.ask(RequestCode.DELETE_TOPIC_IN_BROKER, header).ok()
    cluster.create_topic(of_cluster.topic, brokers=[broker])


@pytest.mark.parametrize("fails", [True, False])
def test_s05_queues_that_begin_anew_are_a_loss_by_option(
    of_cluster: OfCluster, cluster: Cluster, fails: bool
) -> None:
    of_cluster.send_to_all("before", 20)
    of_cluster.run()
    make_again(of_cluster, cluster)
    of_cluster.sent = [place for place in of_cluster.sent if place.broker_name != A]
    of_cluster.send(A, "anew 0", "anew 1")
    of_cluster.send(B, "after")
    query = of_cluster.start(runs_on=False, failOnDataLoss=str(fails).lower())
    if fails:
        words = r"queue [01] of broker broker-a .*the queue ends at .*failOnDataLoss"
        with pytest.raises(StreamingQueryException, match=words):
            query.awaitTermination(WAIT_SECONDS_MAX)
        return
    assert query.awaitTermination(WAIT_SECONDS_MAX)
    assert of_cluster.missing() == set()

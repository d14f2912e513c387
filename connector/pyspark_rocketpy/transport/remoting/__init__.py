"""The way to a cluster of Apache RocketMQ: its remoting protocol, over sockets.

    Cluster            topics, routes, requests to the broker that has a queue
    reading, sending   typed calls on a cluster; topics, too
    ClusterConfig      whom to ask, how patiently, as whom: a plain value

Source and sink do not use it yet.
"""

from pyspark_rocketpy.transport.remoting import reading, sending, topics
from pyspark_rocketpy.transport.remoting.access import AccessKeys
from pyspark_rocketpy.transport.remoting.calls import Call, ClusterConfig
from pyspark_rocketpy.transport.remoting.cluster import Cluster, cluster_for
from pyspark_rocketpy.transport.remoting.peers import Patience, Peer
from pyspark_rocketpy.transport.remoting.routes import TopicRoute
from pyspark_rocketpy.transport.remoting.streams import TlsConfig

__all__ = [
    "AccessKeys",
    "Call",
    "Cluster",
    "ClusterConfig",
    "Patience",
    "Peer",
    "TlsConfig",
    "TopicRoute",
    "cluster_for",
    "reading",
    "sending",
    "topics",
]

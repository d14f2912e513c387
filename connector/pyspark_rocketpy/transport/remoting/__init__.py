"""The way to a cluster of Apache RocketMQ: its remoting protocol, over sockets.

    Cluster            topics, routes, requests to the broker that has a queue
    reading, sending   typed calls on a cluster; topics, too
    ClusterConfig      whom to ask, how patiently, as whom: a plain value

Source and sink do not use it yet.
"""

from pyspark_rocketpy.transport.remoting.cluster import queue_requests, topics
from pyspark_rocketpy.transport.remoting.cluster.client import Cluster, cluster_for
from pyspark_rocketpy.transport.remoting.cluster.routes import TopicRoute
from pyspark_rocketpy.transport.remoting.net.access_keys import AccessKeys
from pyspark_rocketpy.transport.remoting.net.calls import Call, ClusterConfig
from pyspark_rocketpy.transport.remoting.net.peers import Peer, Timeouts
from pyspark_rocketpy.transport.remoting.net.streams import TlsConfig
from pyspark_rocketpy.transport.remoting.send import requests as send_requests

__all__ = [
    "AccessKeys",
    "Call",
    "Cluster",
    "ClusterConfig",
    "Peer",
    "Timeouts",
    "TlsConfig",
    "TopicRoute",
    "cluster_for",
    "queue_requests",
    "send_requests",
    "topics",
]

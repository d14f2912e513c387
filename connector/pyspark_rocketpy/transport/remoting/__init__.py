"""Transport to a cluster of Apache RocketMQ: its remoting protocol over sockets.

Its main names:

    Cluster                         topics, routes, requests to the broker that has a queue
    queue_requests, send_requests   typed calls on a cluster; topics, too
    ClusterConfig                   name servers, timeouts and access keys: a plain value
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

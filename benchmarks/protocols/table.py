"""The protocols by name."""

from benchmarks.protocols import apache_v2, grpc_v1, remoting_client

SIDES = {
    "rocketpy.v1": grpc_v1.SIDE,
    "remoting": remoting_client.SIDE,
    "apache.rocketmq.v2": apache_v2.SIDE,
}

"""Contract of connector and broker: generated gRPC stubs and the codecs.

`rocketpy_proto.record` codes RocketMQ's stored message record. `rocketpy_proto.remoting` codes the
remoting protocol. `rocketpy_proto.rocketpy.v1` and `rocketpy_proto.apache.rocketmq.v2` hold the
code that protoc generates from the files in `proto/`. The package imports neither side.
"""

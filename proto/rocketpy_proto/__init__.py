"""Contract of connector and broker: generated gRPC stubs and the codecs.

`rocketpy_proto.record` codes RocketMQ's stored message record. `rocketpy_proto.remoting` codes the
remoting protocol. `rocketpy_proto.rocketpy.v1` holds the code that protoc generates from
`proto/rocketpy/v1`. The package imports neither side.
"""

"""The contract that connector and broker share: generated gRPC stubs and the codecs.

`rocketpy_proto.record` codes RocketMQ's stored message record, `rocketpy_proto.remoting` the
protocol of its clusters; `rocketpy_proto.rocketpy.v1` holds what protoc makes of
`proto/rocketpy/v1`. It imports neither side and holds no state.
"""

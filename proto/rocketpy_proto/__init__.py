"""The contract that connector and broker share: generated gRPC stubs and the record codec.

`rocketpy_proto.record` codes RocketMQ's stored message record; `rocketpy_proto.rocketpy.v1` holds
what protoc makes of `proto/rocketpy/v1`. It imports neither side and holds no state.
"""

"""RocketMQ's SDKs over gRPC, unmodified, as clients of our broker."""

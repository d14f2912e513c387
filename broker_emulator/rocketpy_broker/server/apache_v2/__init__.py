"""The gRPC protocol of Apache RocketMQ's SDKs, `apache.rocketmq.v2`."""

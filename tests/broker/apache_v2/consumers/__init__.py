"""Consumers of `apache.rocketmq.v2`."""

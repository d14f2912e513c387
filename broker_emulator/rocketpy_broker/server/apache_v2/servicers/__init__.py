"""Servicers of `apache.rocketmq.v2`."""

"""Tests of the connector's transport at RocketMQ's servers."""

"""Tests of our servers in a cluster of RocketMQ's."""

"""Benchmarks beside RocketMQ's brokers and clients."""

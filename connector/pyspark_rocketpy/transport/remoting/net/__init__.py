"""Sockets, TLS, and calls of RocketMQ's remoting protocol."""

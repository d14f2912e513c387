"""A socket server for RocketMQ's remoting protocol."""

"""The port where slaves get the log, in RocketMQ's replication protocol."""

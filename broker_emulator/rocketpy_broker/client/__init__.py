"""A client without Spark: topics, sending, reading and lag, over rocketpy.v1's stubs.

The command line and `LocalBroker` stand on it. Holds no state.
"""

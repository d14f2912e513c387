"""Client without Spark over rocketpy.v1's stubs.

The command line and `LocalBroker` use it.
"""

"""The calls of programs: methods that `BrokerClient` and `LocalBroker` share."""

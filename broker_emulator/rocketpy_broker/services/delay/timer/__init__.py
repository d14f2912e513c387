"""Messages with a delivery time, in the form of RocketMQ's timer topic."""

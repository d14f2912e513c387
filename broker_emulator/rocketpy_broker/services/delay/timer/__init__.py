"""Messages with a delivery time of their own, as RocketMQ's timer topic keeps them."""

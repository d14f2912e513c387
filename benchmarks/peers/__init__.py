"""Our connector and broker beside Kafka's and RocketMQ's, on one machine."""

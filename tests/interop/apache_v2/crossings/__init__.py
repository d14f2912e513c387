"""Messages between RocketMQ's SDKs and other clients."""

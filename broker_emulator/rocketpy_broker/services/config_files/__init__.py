"""JSON files in `config/`: in RocketMQ's format, each with a backup."""

"""The JSON files below `config/`: read as RocketMQ's, replaced as a whole, with a backup."""

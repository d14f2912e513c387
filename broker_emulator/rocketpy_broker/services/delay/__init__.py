"""Delayed messages: so far the offsets that RocketMQ keeps of them."""

"""What topics and groups put and got, over the last minute, hour and day."""

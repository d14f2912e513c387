"""The `rocketpy` command line."""

"""The `rocketpy` command line. Holds no state."""

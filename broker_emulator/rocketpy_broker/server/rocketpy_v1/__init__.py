"""The protocol services of `rocketpy.v1`, for the connector and the command line."""

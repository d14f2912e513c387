"""Transport to a rocketpy broker: `rocketpy.v1` over gRPC."""

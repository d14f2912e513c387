"""The HTTP door: what tools that know no gRPC ask a broker for."""

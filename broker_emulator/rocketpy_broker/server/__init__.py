"""The gRPC and HTTP servers, and the servicers of the rocketpy.v1 protocol."""

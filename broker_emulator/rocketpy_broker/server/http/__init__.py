"""The HTTP server, for tools without gRPC."""

"""The gRPC server, and its answers to clients of other protocols."""

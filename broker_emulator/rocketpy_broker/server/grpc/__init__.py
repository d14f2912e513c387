"""The gRPC server, and the answer to clients of other protocols."""

"""gRPC servicers: translate, check, call a service, map the result. Holds no state."""

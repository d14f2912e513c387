"""One servicer for each service of the protocol rocketpy.v1."""

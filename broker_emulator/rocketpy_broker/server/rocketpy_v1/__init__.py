"""The door for `rocketpy.v1`, the protocol of our connector and command line. Holds no state."""

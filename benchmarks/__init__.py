"""Where every performance figure of the README comes from: `make bench`. Holds no state."""

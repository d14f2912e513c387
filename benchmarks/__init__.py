"""Every performance figure of the README: `make bench`."""

"""Known faults, planted by name, and the tests that find them."""

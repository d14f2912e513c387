"""Tests against RocketMQ's own code; `make interop` fetches it and runs them."""

import pytest

# It compares on behalf of the tests, and should say what differs as they do.
pytest.register_assert_rewrite("tests.interop.stores")

"""Tests against RocketMQ's own code; `make interop` fetches it and runs them."""

import pytest

# Its assertions compare on behalf of the tests, and need the same failure texts.
pytest.register_assert_rewrite("tests.interop.stores")

"""The pytest fixture `rocketpy_broker`, found through the `pytest11` entry point.

Holds no state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rocketpy_broker.local import LocalBroker


@pytest.fixture(scope="session")
def rocketpy_broker() -> Iterator[LocalBroker]:
    """A broker for the whole test session, on a free port, with a temporary store."""
    from rocketpy_broker.local import LocalBroker

    with LocalBroker() as broker:
        yield broker

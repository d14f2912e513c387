"""Error handling and timing of topic and consumer group changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.clock import Clock


@contextmanager
def saving(what: str) -> Iterator[None]:
    """Raises BrokerError for an OSError in the block; the error text names `what`."""
    try:
        yield
    except OSError as error:
        raise BrokerError(
            f"the change of {what} could not be saved ({error.strerror}); check the broker's "
            "disk and try again"
        ) from error


@contextmanager
def timing(clock: Clock, report: Callable[[float, bool], None]) -> Iterator[None]:
    """Calls `report` when the block ends, also by an error, with ms taken and success."""
    begin_ms, is_success = clock.monotonic_ms(), False
    try:
        yield
        is_success = True
    finally:
        report(clock.monotonic_ms() - begin_ms, is_success)

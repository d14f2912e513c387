"""What changes of topics and of consumer groups have in common. Holds no state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.clock import Clock


@contextmanager
def saving(what: str) -> Iterator[None]:
    """Around a change of `what`, as people call it. Raises BrokerError where the disk refuses."""
    try:
        yield
    except OSError as error:
        raise BrokerError(
            f"the change of {what} could not be saved ({error.strerror}); "
            "see to the broker's disk and try again"
        ) from error


@contextmanager
def timing(clock: Clock, tell: Callable[[float, bool], None]) -> Iterator[None]:
    """Around a change. Tells, however it ends, how many ms it took, and whether it succeeded."""
    begin_ms, is_success = clock.monotonic_ms(), False
    try:
        yield
        is_success = True
    finally:
        tell(clock.monotonic_ms() - begin_ms, is_success)

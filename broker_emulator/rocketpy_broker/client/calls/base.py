"""Base of the calls, which a forked process makes in a helper."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any, TypeVar, cast

from rocketpy_broker.client.calls.fork_calls import Helper, is_forked
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.errors import ClientError

MethodT = TypeVar("MethodT", bound=Callable[..., Any])


class BrokerCalls(ABC):
    """Base of classes with methods that call a broker."""

    _helper: Helper | None = None

    @abstractmethod
    def _connection(self) -> AbstractContextManager[BrokerConnection]:
        """Returns a connection to the broker for one call."""

    @abstractmethod
    def _check_usable(self) -> None:
        """Raises BrokerError if no call can work."""

    def _born_ms(self, _connection: BrokerConnection) -> int | None:
        """Returns the time of a new half message in ms since 1970.

        None means the present time of this program.
        """
        return None

    @contextmanager
    def _declared_errors(self) -> Iterator[None]:
        """Turns errors of its block into declared ones. Raises BrokerError."""
        try:
            yield
        except (TypeError, ValueError) as error:
            raise ClientError(f"a value cannot be sent to the broker: {error}") from error

    def _helper_process(self) -> Helper:
        """Returns the helper of this forked process; starts it first if needed.

        Raises BrokerError.
        """
        self._check_usable()
        if self._helper is None or not self._helper.is_usable:
            self._helper = Helper(self)
        return self._helper


def call(method: MethodT) -> MethodT:
    """Decorates a method of BrokerCalls, which then raises no error but BrokerError.

    A forked process runs it in its helper process.
    """

    @wraps(method)
    def calling(broker: BrokerCalls, *args: Any, **options: Any) -> object:
        with broker._declared_errors():  # noqa: SLF001 (of this module)
            if is_forked():
                helper = broker._helper_process()  # noqa: SLF001 (as above)
                return helper.call(method.__name__, args, options)
            return method(broker, *args, **options)

    return cast("MethodT", calling)

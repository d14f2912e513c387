"""Base of LocalBroker's calls: a connection, and calls of forked processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, TypeVar, cast

from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.embedded.fork_calls import Helper, is_forked

MethodT = TypeVar("MethodT", bound=Callable[..., Any])


class BrokerCalls(ABC):
    """Base of classes with methods that call a broker."""

    _helper: Helper | None = None

    @abstractmethod
    def _connection(self) -> AbstractContextManager[BrokerConnection]:
        """Connects to the running broker. Raises LocalBrokerError, also for client errors."""

    @abstractmethod
    def _check_running(self) -> None:
        """Raises LocalBrokerError if the broker does not run."""

    def _helper_process(self) -> Helper:
        """Returns the helper of this forked process; starts it first if needed.

        Raises LocalBrokerError.
        """
        self._check_running()
        if self._helper is None or not self._helper.is_usable:
            self._helper = Helper(self)
        return self._helper


def call(method: MethodT) -> MethodT:
    """Decorates a method of BrokerCalls: a forked process runs it in its helper process."""

    @wraps(method)
    def calling(broker: BrokerCalls, *args: Any, **options: Any) -> object:
        if is_forked():
            helper = broker._helper_process()  # noqa: SLF001 (of this module)
            return helper.call(method.__name__, args, options)
        return method(broker, *args, **options)

    return cast("MethodT", calling)

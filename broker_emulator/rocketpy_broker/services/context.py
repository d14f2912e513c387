"""Context of all services, and their steps at broker start and stop.

Each `build` of a wiring takes the context and the wirings of lower layers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, TypeAlias

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.listeners import Listeners
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.store.message_store import MessageStore

Step: TypeAlias = Callable[[], None]


class SavedTable(Protocol):
    """A table in memory, saved at intervals by a thread."""

    @property
    def name(self) -> str:
        """The table's name in the log."""

    async def save(self) -> None:
        """Saves what has changed. Raises OSError; the next call tries again."""

    def close(self) -> None:
        """Waits for a running save and ends the thread."""


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """Steps of a broker's life; each list runs in the order of the layers, lowest first.

    `loads` run when the store is open. `starts` start the services' tasks and return before
    clients may connect. `tables` are saved at intervals and at a clean stop, and closed after any
    end. `stops` release held calls before the server stops. `closes` run after any end, in
    reverse; `clean_closes` run after a clean stop.
    """

    loads: list[Step] = field(default_factory=list)
    starts: list[Callable[[TaskScope], Awaitable[None]]] = field(default_factory=list)
    tables: list[SavedTable] = field(default_factory=list)
    stops: list[Step] = field(default_factory=list)
    clean_closes: list[Step] = field(default_factory=list)
    closes: list[Step] = field(default_factory=list)


@dataclass(frozen=True)
class BrokerContext:
    """Configuration, time and store of one broker, and the lifecycle for its steps.

    `clock` is the time of messages, groups and batches. `call_clock` is the time of calls and the
    disk; no test moves it. `tasks` owns the tasks that run beside the requests, from the start to
    the end of serving.
    """

    config: BrokerConfig
    clock: Clock
    call_clock: Clock
    store: MessageStore
    tasks: TaskScope = field(default_factory=TaskScope)
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    # Called with the configuration after each change by an operator.
    config_changed: Listeners[[BrokerConfig]] = field(default_factory=Listeners[[BrokerConfig]])

    @cached_property
    def master_lifecycle(self) -> Lifecycle:
        """The lifecycle of services that work on a master alone: a slave does not run it.

        These write to the log, or save files that a slave gets from its master.
        """
        return Lifecycle() if self.config.replication.is_slave else self.lifecycle

"""What every room of services stands on, and what rooms want done as the broker starts and stops.

A room's `build` takes the ground and the rooms below it. Holds no state on disk.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.store.message_store import MessageStore

Step: TypeAlias = Callable[[], None]


class SavedTable(Protocol):
    """A table that lives in memory and is saved now and then, in a thread."""

    @property
    def name(self) -> str:
        """What the log calls it."""

    async def save(self) -> None:
        """Saves what has changed. Raises OSError; it is then tried again at the next call."""

    def close(self) -> None:
        """Waits for a save that is under way, and end the thread."""


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """Steps of a broker's life; each list is run in the order of the floors, lowest first.

    `loads` run when the store is open. `starts` begin the rooms' tasks and return before clients
    may come. `tables` are saved at intervals and at a clean stop, and closed after any end. `stops`
    release held calls before the server stops. `closes` run after any end, in reverse;
    `clean_closes` after a clean stop.
    """

    loads: list[Step] = field(default_factory=list)
    starts: list[Callable[[TaskScope], Awaitable[None]]] = field(default_factory=list)
    tables: list[SavedTable] = field(default_factory=list)
    stops: list[Step] = field(default_factory=list)
    clean_closes: list[Step] = field(default_factory=list)
    closes: list[Step] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class BrokerContext:
    """Configuration, time and store of one broker, and its lifecycle to register with.

    `clock` is the time of messages, groups and batches. `call_clock` is that of calls and the disk,
    which no test moves. `tasks` owns what goes on beside the requests, from the start to the end of
    serving.
    """

    config: BrokerConfig
    clock: Clock
    call_clock: Clock
    store: MessageStore
    tasks: TaskScope = field(default_factory=TaskScope)
    lifecycle: Lifecycle = field(default_factory=Lifecycle)

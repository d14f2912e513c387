"""Registrations of the broker at its name servers.

NAMESRV_ADDR is not read: a client's variable must not register a test broker in production.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rocketpy_broker.runtime.clock import Clock, resolve
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.registration.name_server import NameServerRegistration
from rocketpy_broker.services.topics.manager import TopicConfigManager

# The time that a caller waits for name servers after a change of a topic.
PUBLISH_MS_MAX = 1_000


class RegistrationService:
    """The registrations; a name server that fails delays neither the broker nor another one."""

    def __init__(
        self,
        registrations: Sequence[NameServerRegistration],
        topics: TopicConfigManager,
        clock: Clock,
    ) -> None:
        self._registrations = registrations
        self._topics = topics
        self._clock = clock

    def start(self, scope: TaskScope) -> None:
        """Registers the broker from now on, in the background."""
        for each in self._registrations:
            scope.start(each.run())
        self._topics.published = self._published

    async def _published(self) -> None:
        """Waits until the name servers have all changes; a slow one only once, for a second."""
        waits = [(each, each.published()) for each in self._registrations]
        pending = [(each, future) for each, future in waits if future is not None]
        if not pending:
            return

        def give_up() -> None:
            for each, future in pending:
                each.is_prompt = each.is_prompt and future.done()
                resolve(future)

        timer = self._clock.call_later(PUBLISH_MS_MAX, give_up)
        try:
            for _, future in pending:
                await future
        finally:
            timer.cancel()

    async def stop(self) -> None:
        """Ends the registrations at all name servers, each in a second or less."""
        await asyncio.gather(*(each.stop() for each in self._registrations))

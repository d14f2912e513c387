"""Removal of a topic's messages and committed offsets.

The messages are removed first. Both are removed from disk before a topic of this name can be
created again; otherwise groups would start in its middle. A crash in between leaves a topic that
can be removed again.
"""

from __future__ import annotations

from rocketpy_broker.services.config_files.saver import Saver
from rocketpy_broker.services.flush.store_files import StoreFiles
from rocketpy_broker.services.offsets.committed import ConsumerOffsetManager


class TopicContents:
    """Removal of topic contents from one store."""

    def __init__(
        self, store_files: StoreFiles, consumers: ConsumerOffsetManager, saver: Saver
    ) -> None:
        self._store_files = store_files
        self._consumers = consumers
        self._saver = saver

    async def remove(self, topic: str) -> None:
        """Removes messages and committed offsets permanently; durable on return.

        The caller is in a `refusing` block, so no client sends or commits. Raises OSError.
        """
        await self._store_files.delete_topic(topic)
        await self._consumers.delete_topic(topic)
        await self._saver.save()

    async def empty(self, topic: str) -> None:
        """Removes the messages permanently; durable on return. Committed offsets stay.

        Raises OSError, StoreClosedError.
        """
        await self._store_files.empty_topic(topic)

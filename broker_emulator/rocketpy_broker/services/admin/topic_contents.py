"""What belongs to a topic besides its configuration: messages, and how far groups are in them.

The messages go first, and nothing of both is left on disk when another topic of this name may be
made: groups would begin in the middle of it. A crash in between leaves a topic that can be removed
again.
"""

from __future__ import annotations

from rocketpy_broker.services.config_files.saver import Saver
from rocketpy_broker.services.flush.store_files import StoreFiles
from rocketpy_broker.services.offsets.committed import ConsumerOffsetManager


class TopicContents:
    """Removes the contents of topics."""

    def __init__(
        self, store_files: StoreFiles, consumers: ConsumerOffsetManager, saver: Saver
    ) -> None:
        self._store_files = store_files
        self._consumers = consumers
        self._saver = saver

    async def remove(self, topic: str) -> None:
        """Removes messages and progress for ever; durable on return.

        To be called in a block of `refusing`: nobody sends or commits then. Raises OSError.
        """
        await self._store_files.delete_topic(topic)
        await self._consumers.delete_topic(topic)
        await self._saver.save()

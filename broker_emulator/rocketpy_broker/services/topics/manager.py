"""Topics of this broker: `config/topics.json`.

Every change is on disk before it takes effect and is answered. A crash therefore loses no change
that a client has seen. The store creates queues with their first message; this table has the
number of queues of each topic.
Source: TopicConfigManager, docs/design/storage.md sections 11.2 and 12.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import replace
from functools import partial
from pathlib import Path

from rocketpy_broker.config import SystemTopicOptions
from rocketpy_broker.errors import (
    PermissionDeniedError,
    QueueIdIllegalError,
    TopicIllegalError,
    TopicNotExistError,
)
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.listeners import Listeners
from rocketpy_broker.services.config_files.saver import Saver, save_now
from rocketpy_broker.services.config_files.table import ConfigTable
from rocketpy_broker.services.topics.changes import TopicChange, TopicExistsError, check_values
from rocketpy_broker.services.topics.entry import TopicEntry
from rocketpy_broker.services.topics.epochs import (
    TopicRecreatedError,
    is_recreated,
    made,
    made_elsewhere,
)
from rocketpy_broker.services.topics.sorted_names import SortedNames
from rocketpy_broker.services.topics.system import RESERVED, SEND_FORBIDDEN, system_topics
from rocketpy_proto.model import RESERVED_PREFIX, RETRY_PREFIX, TRACE_TOPIC
from rocketpy_proto.model.configs import DataVersion, Perm, TopicConfig

TOPIC_PATTERN = re.compile(r"[%|a-zA-Z0-9_-]+")
TOPIC_BYTES_MAX = 127
TABLE = "topicConfigTable"
_Make = Callable[[TopicEntry | None], TopicEntry | None]


class TopicConfigManager:
    """The table of topics."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        cluster_name: str,
        broker_name: str,
        options: SystemTopicOptions | None = None,
        *,
        enable_mixed_message_type: bool = False,
    ) -> None:
        self.enable_mixed_message_type = enable_mixed_message_type
        self._system = system_topics(cluster_name, broker_name, options or SystemTopicOptions())
        self._table = ConfigTable(folder / "topics.json", clock, TABLE, TopicEntry.to_json)
        self._entries = self._table.entries
        # Called with the names of the topics after each change of the table.
        self.changed = Listeners[[Collection[str]]]()
        self._table.on_change = self.changed
        # Awaited after each change: name servers should know a topic before its caller does.
        self.published: Callable[[], Awaitable[None]] = _published
        self._table.take_in({name: TopicEntry(each) for name, each in self._system.items()})
        self._all_names = SortedNames(lambda _name: True)
        self._own_names = SortedNames(lambda name: not self.is_internal(name))

    @property
    def saver(self) -> Saver:
        """The saver of the table's changes."""
        return self._table.saver

    @property
    def version(self) -> DataVersion:
        """The version of the table."""
        return self._table.version.value

    def next_version(self) -> None:
        """Gives the table another version; it is saved with the next save."""
        self._table.note({})

    def load(self) -> None:
        """Reads the file; writes it at the first start. Blocks.

        Entries of system topics in the file replace the defaults of this version.
        Raises ConfigFileError, OSError.
        """
        loaded = self._table.load(TopicEntry.from_json)
        if loaded is None:
            self._table.note({})
            save_now(self._table)
            return
        # Names are sorted during the start, so that the sort of many names delays no call later.
        for include_system in (True, False):
            self.names(include_system=include_system)
        own = {topic: each for topic, each in loaded.items() if not self.is_system(topic)}
        if foreign := made_elsewhere(own):
            self._table.note(foreign)
            # A failed save does no harm: after a crash, the next start draws the epochs again.
            with contextlib.suppress(OSError):
                save_now(self._table)

    def exists(self, topic: str) -> bool:
        """True if the topic is configured or a system topic."""
        return topic in self._entries or self.is_system(topic)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, topic: str) -> bool:
        return topic in self._entries

    def get(self, topic: str) -> TopicConfig:
        """Returns the topic's configuration. Raises TopicNotExistError."""
        found = self._entries.get(topic)
        if found is None:
            raise TopicNotExistError(topic)
        return found.config

    def find(self, topic: str) -> TopicConfig | None:
        """Returns the topic's configuration, or None."""
        found = self._entries.get(topic)
        return None if found is None else found.config

    def epoch(self, topic: str) -> int:
        """Returns the topic's epoch, 0 if it is unknown. Raises TopicNotExistError."""
        self.get(topic)
        return self._entries[topic].epoch

    def check_epoch(self, topic: str, epoch: int) -> None:
        """Raises TopicRecreatedError if the topic has another epoch, and TopicNotExistError."""
        own = self.epoch(topic)
        if is_recreated(epoch, own):
            raise TopicRecreatedError(topic, epoch, own)

    def names(self, *, include_system: bool) -> Sequence[str]:
        """Returns all names, sorted; system and retry topics only with `include_system`."""
        names = self._all_names if include_system else self._own_names
        return names.of(self._entries.keys(), self._table.change_count)

    def copy(self) -> dict[str, TopicEntry]:
        """Returns all topics by name, as they are now."""
        return dict(self._entries)

    def configs(self, names: Iterable[str]) -> Iterator[TopicConfig]:
        """Yields the current configurations of these topics, each looked up on demand."""
        entries = self.copy()
        return (entries[name].config for name in names)

    def list(self, *, include_system: bool) -> list[TopicConfig]:
        """Returns all topics by name; system and retry topics only with `include_system`."""
        return [*self.configs(self.names(include_system=include_system))]

    def system_names(self) -> Sequence[str]:
        """Returns the names of the system topics, configured or not, sorted."""
        return sorted(self._system.keys() | RESERVED)

    def is_system(self, topic: str) -> bool:
        """True if the topic is a system topic."""
        return topic in self._system or topic in RESERVED or topic.startswith(RESERVED_PREFIX)

    def is_internal(self, topic: str) -> bool:
        """True if the topic is listed only on request: a system or retry topic."""
        return self.is_system(topic) or is_retry(topic)

    async def _change(self, topic: str, make: _Make) -> None:
        await self._change_all({topic: make})

    async def _change_all(self, makes: Mapping[str, _Make]) -> None:
        await self._table.change_all(makes)
        await self.published()

    async def alter(self, changes: Sequence[TopicChange], *, create_only: bool = False) -> None:
        """Creates or changes topics in one save; durable on return. Values not in a change stay.

        Fewer queues hide the messages of the removed queues, until the number grows again.
        Raises TopicIllegalError, OSError; then nothing has changed. Raises TopicAttributeError, or
        TopicExistsError for a topic that exists already; then the other topics have changed.
        """
        for change in changes:
            self._check_own_name(change.topic)
            change.check(enable_mixed_message_type=self.enable_mixed_message_type)

        def changed(change: TopicChange, old: TopicEntry | None) -> TopicEntry:
            _check_new(old, create_only=create_only)
            if old is None:
                return made(change.of(None))
            return replace(old, config=change.of(old.config))

        await self._change_all({each.topic: partial(changed, each) for each in changes})

    async def update(self, config: TopicConfig, *, create_only: bool) -> None:
        """Creates a topic or changes it to this configuration; durable on return.

        An existing topic changes only its queue numbers, permission and attributes.
        Raises TopicIllegalError, TopicExistsError, OSError; then nothing has changed.
        """
        self._check(config)

        def changed(old: TopicEntry | None) -> TopicEntry:
            _check_new(old, create_only=create_only)
            if old is None:
                return made(config)
            return old.changed(
                read_queue_nums=config.read_queue_nums,
                write_queue_nums=config.write_queue_nums,
                perm=config.perm,
                attributes=config.attributes,
            )

        await self._change(config.topic, changed)

    async def replicate(self, changes: Mapping[str, TopicEntry | None]) -> None:
        """Makes topics as they are at the master; None removes one. Durable on return.

        Raises OSError; then nothing has changed.
        """
        if changes:
            await self._table.set_all(changes)
            await self.published()

    async def add_queues(self, topic: str, nums: int) -> None:
        """Increases the queue numbers of a topic to at least `nums`; durable on return.

        Raises TopicNotExistError, OSError; then nothing has changed.
        """

        def wider(old: TopicEntry | None) -> TopicEntry:
            if old is None:
                raise TopicNotExistError(topic)
            config = old.config
            read, write = max(config.read_queue_nums, nums), max(config.write_queue_nums, nums)
            return old.changed(read_queue_nums=read, write_queue_nums=write)

        await self._change(topic, wider)

    def note_own(self, config: TopicConfig) -> None:
        """Adds a system topic; it is saved with the next save of the table."""
        if config.topic not in self._entries:
            self._table.note({config.topic: TopicEntry(config)})
            self.changed([config.topic])

    async def make_retry_topics(self, configs: Iterable[TopicConfig]) -> None:
        """Creates retry topics; sets `order` of existing ones. Durable on return.

        A retry topic may have no queues if its group has none. Raises OSError; then nothing has
        changed.
        """
        await self._change_all({config.topic: partial(_retry_topic, config) for config in configs})

    def check(self, config: TopicConfig) -> None:
        """Raises TopicIllegalError if `update` would refuse the name or a value."""
        self._check(config)

    async def create(self, config: TopicConfig) -> None:
        """Creates a topic for a send unless it exists; durable on return.

        A client's first trace creates the trace topic, although its name is reserved. Raises
        TopicIllegalError, OSError; then nothing has changed.
        """
        if config.topic != TRACE_TOPIC:
            self._check_own_name(config.topic)
        check_values(config)
        await self._change(config.topic, lambda old: old or made(config))

    @staticmethod
    def check_name(topic: str) -> None:
        """Raises TopicIllegalError for an illegal topic name."""
        if not TOPIC_PATTERN.fullmatch(topic) or len(topic) > TOPIC_BYTES_MAX:
            raise TopicIllegalError(
                f"topic name {topic!r:.200} is illegal; "
                f"use 1 to {TOPIC_BYTES_MAX} of the characters a-z A-Z 0-9 _ - % |"
            )

    def _check_own_name(self, topic: str) -> None:
        """Raises TopicIllegalError for a name that clients must not use."""
        self.check_name(topic)
        if self.is_system(topic):
            raise TopicIllegalError(
                f"The topic[{topic}] is conflict with system topic. "
                "The name is reserved; choose another name"
            )

    def _check(self, config: TopicConfig) -> None:
        self._check_own_name(config.topic)
        check_values(config)

    def check_deletable(self, topic: str) -> None:
        """Raises TopicIllegalError for a system topic, or TopicNotExistError."""
        if self.is_system(topic):
            fault = "is the broker's own and cannot be deleted or emptied"
            raise TopicIllegalError(f"topic {topic!r} {fault}")
        self.get(topic)

    async def delete(self, topic: str) -> None:
        """Removes a topic; durable on return.

        Raises TopicNotExistError, TopicIllegalError, OSError.
        """
        self.check_deletable(topic)
        await self._change(topic, lambda _old: None)

    def check_writable(self, topic: str, queue_id: int) -> TopicConfig:
        """Returns the topic if clients may send to that queue; -1 means any queue.

        Raises TopicNotExistError, PermissionDeniedError, QueueIdIllegalError.
        """
        config = self.get(topic)
        if topic in SEND_FORBIDDEN or topic.startswith(RESERVED_PREFIX):
            raise PermissionDeniedError(f"sending to the system topic {topic!r} is forbidden")
        if not config.perm & Perm.WRITE:
            raise PermissionDeniedError(
                f"topic {topic!r} is not writable (perm {config.perm}); set its perm to 2 or 6"
            )
        # The file of another broker may have a topic without queues; -1 is illegal then.
        if config.write_queue_nums < 1 or not -1 <= queue_id < config.write_queue_nums:
            raise QueueIdIllegalError(topic, queue_id, config.write_queue_nums)
        return config

    def check_readable(
        self, topic: str, queue_id: int, *, is_hidden_too: bool = False
    ) -> TopicConfig:
        """Returns the topic if clients may read the queue; any queue with `is_hidden_too`.

        Raises TopicNotExistError, PermissionDeniedError, QueueIdIllegalError.
        """
        config = self.get(topic)
        if not config.perm & Perm.READ:
            raise PermissionDeniedError(
                f"topic {topic!r} is not readable (perm {config.perm}); set its perm to 4 or 6"
            )
        if not is_hidden_too and not 0 <= queue_id < config.readable_queues:
            raise QueueIdIllegalError(topic, queue_id, config.readable_queues)
        return config


async def _published() -> None:
    """Returns at once: the broker registers nowhere."""


def is_retry(topic: str) -> bool:
    """True if the topic is the retry topic of a consumer group."""
    return topic.startswith(RETRY_PREFIX)


def _retry_topic(config: TopicConfig, old: TopicEntry | None) -> TopicEntry:
    return made(config) if old is None else old.changed(order=config.order)


def _check_new(old: TopicEntry | None, *, create_only: bool) -> None:
    """Raises TopicExistsError if the topic to create exists already."""
    if old is not None and create_only:
        raise TopicExistsError(old.config.topic)

"""Message request modes, pull or pop, by topic and group: `config/messageRequestMode.json`.

A change is on disk before it is answered. Source: MessageRequestModeManager,
docs/design/storage.md section 11.6.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import field

from rocketpy_broker.errors import ClientsFullError, ParameterIllegalError, PermissionDeniedError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.services.config_files.json_fields import JsonFields, as_object
from rocketpy_broker.services.config_files.saver import Saver
from rocketpy_broker.services.config_files.table import ConfigTable
from rocketpy_broker.services.groups.manager import check_group
from rocketpy_broker.services.topics.manager import TopicConfigManager, is_retry
from rocketpy_proto.struct_types import Body, Int32

PULL, POP = "PULL", "POP"
TABLE = "messageRequestModeMap"


class MessageRequestMode(Body, frozen=True):
    """The mode of a group in a topic.

    With POP and a `share_count` above 0, a member pops its own queues and the next `share_count`
    members' queues. Otherwise each member pops all queues.
    """

    mode: str = PULL
    share_count: Int32 = field(name="popShareQueueNum", default=0)


# A mode, and the other fields of its entry in the file.
_Entry = tuple[MessageRequestMode, Mapping[str, object]]
Modes = Mapping[str, _Entry]
_FIELDS = JsonFields(MessageRequestMode)
_DEFAULT: _Entry = (MessageRequestMode(), {})


class MessageRequestModes:
    """The table of modes, at most `count_max` of them."""

    def __init__(self, folder: Path, clock: Clock, count_max: int) -> None:
        path = folder / "messageRequestMode.json"
        self._table: ConfigTable[Modes] = ConfigTable(path, clock, TABLE, _encode_all)
        self._count_max = count_max

    @property
    def saver(self) -> Saver:
        """The saver of the table's changes."""
        return self._table.saver

    def load(self) -> None:
        """Reads the file if it exists. Raises ConfigFileError."""
        self._table.load(lambda _topic, entry: _decode_all(entry))

    def find(self, topic: str, group: str) -> MessageRequestMode:
        """Returns the mode; PULL by default."""
        return self._table.entries.get(topic, {}).get(group, _DEFAULT)[0]

    async def set(self, topic: str, group: str, mode: MessageRequestMode) -> None:
        """Sets a mode; durable on return.

        Raises PermissionDeniedError for a retry topic, which is always pulled. Raises
        ParameterIllegalError, TopicIllegalError, ClientsFullError, OSError.
        """
        if is_retry(topic):
            raise PermissionDeniedError(
                f"retry topic is not allowed to set mode: {topic!r:.200} is always pulled; name "
                "another topic"
            )
        TopicConfigManager.check_name(topic)
        check_group(group)
        if mode.mode not in {PULL, POP}:
            raise ParameterIllegalError("mode", mode.mode, f"{PULL} or {POP}")

        def changed(old: Modes | None) -> Modes:
            if group not in (old or {}):
                self._check_count()
            return {**(old or {}), group: (mode, {})}

        await self._table.change(topic, changed)

    def _check_count(self) -> None:
        if sum(map(len, self._table.entries.values())) >= self._count_max:
            name = "the number of message request modes"
            way_out = "stop the broker, and remove unneeded ones from messageRequestMode.json"
            raise ClientsFullError(name, self._count_max, way_out)


def _encode_all(modes: Modes) -> object:
    return {
        group: {**_FIELDS.encode(*mode), "consumerGroup": group} for group, mode in modes.items()
    }


def _decode_all(entry: object) -> Modes:
    return {group: _FIELDS.decode(mode) for group, mode in as_object(entry).items()}

"""Key-value configuration: texts by namespace and key.

It has the configuration of ordered topics, too. State: `kvConfig.json` as RocketMQ writes it, if a
path is given. A crash during a save leaves the earlier or the later file. Source: KVConfigManager,
docs/design/cluster.md section 3.5.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from rocketpy_broker.errors import ConfigFileError
from rocketpy_broker.nameserver.entry_bytes import EntryBytes, size_of
from rocketpy_broker.store.files import durable

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
# Each change encodes all keys. A registration's answer encodes the keys of ordered topics.
BYTES_MAX = 8 << 20
TABLE = "configTable"


class KVConfig:
    """The configuration; each change is saved before its answer."""

    def __init__(self, path: Path | None) -> None:
        """Reads the file, if it exists. Raises ConfigFileError."""
        self._path = path
        self._table: dict[str, dict[str, str]] = {}
        self._bytes = EntryBytes("keys", BYTES_MAX)
        # One change at a time: each writes the whole file.
        self._saving = asyncio.Lock()
        if path is None or not path.exists():
            return
        try:
            loaded = msgspec.json.decode(
                path.read_bytes(), type=dict[str, dict[str, dict[str, str]]]
            )
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigFileError(path, str(error), "repair it, or move it away") from error
        self._table = loaded.get(TABLE, {})
        for namespace, values in self._table.items():
            for key, value in values.items():
                self._bytes.total += size_of((namespace, key, value))

    def get(self, namespace: str, key: str) -> str | None:
        """Returns a value; None for a missing key."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """Returns the keys and values of a namespace; None for a missing namespace."""
        return self._table.get(namespace)

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Stores a value. Raises TooManyEntriesError, OSError."""
        async with self._saving:
            before = self.get(namespace, key)
            old = () if before is None else (namespace, key, before)
            growth = self._bytes.growth((namespace, key, value), old)
            values = {**self._table.get(namespace, {}), key: value}
            await self._save({**self._table, namespace: values})
            self._bytes.total += growth

    async def delete(self, namespace: str, key: str) -> None:
        """Deletes a value; does nothing for a missing key. Raises OSError."""
        async with self._saving:
            before = self.get(namespace, key)
            if before is None:
                return
            left = {name: value for name, value in self._table[namespace].items() if name != key}
            table = {**self._table, namespace: left}
            await self._save({name: values for name, values in table.items() if values})
            self._bytes.change(old=(namespace, key, before))

    async def _save(self, table: dict[str, dict[str, str]]) -> None:
        if self._path is not None:
            await asyncio.to_thread(_write, self._path, table)
        self._table = table


def _write(path: Path, table: dict[str, dict[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    durable.replace_bytes(path, msgspec.json.encode({TABLE: table}))

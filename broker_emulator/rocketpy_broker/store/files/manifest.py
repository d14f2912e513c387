"""The file `rocketpy/manifest.json`: the content of derived files at one log end.

It maps each file of a consume queue to the length and CRC-32 of its units of records below
`log_end`. Index and checksums have the same entries. A start compares them with the files. Files
that fit need no scan of the log below `log_end`; other files are rebuilt from the log.

The manifest is written whole and durably after a recovery and at a clean stop. A serving broker
writes it after each segment's size of new records. A crash leaves the old or the new one. It holds
the CRC of its own content. A manifest that cannot be read, or has another CRC, is ignored:
everything is then checked against the log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.store.files import durable
from rocketpy_broker.store.values import FilePrefix, QueueKey
from rocketpy_proto.record.crc import body_crc

VERSION = 1
CRC_FIELD = ', "crc": '


@dataclass(frozen=True, slots=True)
class Manifest:
    """The state of derived files at `log_end`; sizes in bytes.

    `index` and `checksums` are by file name. `store_time_falls` are the physical offsets of records
    with a lower timestamp than their predecessor.
    """

    log_end: int
    segment_bytes: int
    queue_file_bytes: int
    last_store_timestamp_ms: int
    queues: Mapping[QueueKey, Mapping[str, FilePrefix]] = field(default_factory=dict)
    index: Mapping[str, FilePrefix] = field(default_factory=dict)
    checksums: Mapping[str, FilePrefix] = field(default_factory=dict)
    store_time_falls: tuple[int, ...] = ()

    def save(self, path: Path) -> None:
        """Replaces the file. Raises OSError."""
        durable.replace_bytes(path, self.encoded())

    def encoded(self) -> bytes:
        """Returns the content of the file.

        Topics are encoded one by one, because one call for all of them would block every thread.
        """
        topics: dict[str, dict[str, object]] = {}
        for key, prefixes in self.queues.items():
            topics.setdefault(key.topic, {})[str(key.queue_id)] = _to_json(prefixes)
        queues = ", ".join(f"{json.dumps(name)}: {json.dumps(topics[name])}" for name in topics)
        content = {
            "version": json.dumps(VERSION),
            "logEnd": json.dumps(self.log_end),
            "segmentBytes": json.dumps(self.segment_bytes),
            "queueFileBytes": json.dumps(self.queue_file_bytes),
            "lastStoreTimestamp": json.dumps(self.last_store_timestamp_ms),
            "storeTimeFalls": json.dumps(list(self.store_time_falls)),
            "consumeQueues": f"{{{queues}}}",
            "index": json.dumps(_to_json(self.index)),
            "checksums": json.dumps(_to_json(self.checksums)),
        }
        fields = ", ".join(f'"{name}": {value}' for name, value in content.items())
        crc = body_crc(f"{{{fields}}}".encode())
        return f"{{{fields}{CRC_FIELD}{crc}}}".encode()

    @classmethod
    def load(cls, path: Path) -> Manifest | None:
        """Reads the file; returns None if there is none that can be read.

        Raises StoreDirectoryError for the manifest of a newer version.
        """
        try:
            data = path.read_bytes()
            content: dict[str, Any] = json.loads(data)
            if content["version"] > VERSION:
                reason = f"has version {content['version']}, this program supports up to {VERSION}"
                raise StoreDirectoryError(
                    path, reason, "use the version of rocketpy that wrote it, or a newer one"
                )
            if content["crc"] != _crc_of(data):
                return None
            queues = {
                QueueKey(topic, int(queue_id)): _from_json(prefixes)
                for topic, by_id in content["consumeQueues"].items()
                for queue_id, prefixes in by_id.items()
            }
            return cls(
                int(content["logEnd"]),
                int(content["segmentBytes"]),
                int(content["queueFileBytes"]),
                int(content["lastStoreTimestamp"]),
                queues,
                _from_json(content["index"]),
                _from_json(content["checksums"]),
                tuple(int(offset) for offset in content.get("storeTimeFalls", [])),
            )
        except (OSError, AttributeError, KeyError, TypeError, ValueError):
            return None


def _crc_of(data: bytes) -> int:
    """Returns the CRC-32 of the text without its last field, the CRC."""
    fields, _, _ = data.rpartition(CRC_FIELD.encode())
    return body_crc(fields + b"}")


def _to_json(prefixes: Mapping[str, FilePrefix]) -> dict[str, list[int]]:
    return {name: [prefix.length, prefix.crc] for name, prefix in prefixes.items()}


def _from_json(content: dict[str, list[int]]) -> dict[str, FilePrefix]:
    return {name: FilePrefix(int(length), int(crc)) for name, (length, crc) in content.items()}

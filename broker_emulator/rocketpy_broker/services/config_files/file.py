"""JSON configuration files with a backup, in RocketMQ's shape.

A crash while saving leaves the old or the new content. A file that cannot be read is answered by
its backup: the broken one is kept as `<name>.broken`, and the backup is put in its place. Where
there is no readable backup the broker does not start, since starting with defaults would wipe the
table at the next save.
Source: ConfigManager, spec/storage.md section 1 (`.bak`) and section 11.1.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from rocketpy_broker.errors import ConfigFileError
from rocketpy_broker.services.config_files import relaxed_json
from rocketpy_broker.services.config_files.json_fields import as_object
from rocketpy_broker.store.files import durable

logger = logging.getLogger(__name__)
Table = TypeVar("Table")
Entry = TypeVar("Entry")
# Escapes keep a file readable for everyone, also where a string is no valid Unicode.
_ENCODER = json.JSONEncoder(separators=(",", ":"))
# Encoded by one call, for which other threads wait.
ENCODED_KEYS = 500


@dataclass(frozen=True, slots=True)
class Entries(Generic[Entry]):
    """A field that is a table: entries by name, and the JSON of one of them.

    An entry must not change once it was saved: while it is the same one, its text is used again.
    """

    by_name: Mapping[str, Entry]
    encode: Callable[[Entry], object]


class _Text(str):
    """JSON already."""

    __slots__ = ()


class ConfigFile:
    """One file below `config/`, holding one JSON object.

    `fields` are those that the caller reads, saves, or leaves out on purpose; all others are
    written back as they were read.
    """

    def __init__(self, path: Path, fields: Collection[str]) -> None:
        self.path = path
        self._backup = path.with_name(path.name + ".bak")
        self._broken = path.with_name(path.name + ".broken")
        self._fields = fields
        self._kept: Mapping[str, object] = {}
        # Of each table, by name: an entry and its text.
        self._texts: dict[str, dict[str, tuple[object, str]]] = {}

    def load(self, decode: Callable[[Mapping[str, Any]], Table]) -> Table | None:
        """What `decode` makes of the content, or of the backup's; None where neither is there.

        `decode` raises ValueError for what it cannot use, which counts as broken. Raises
        ConfigFileError where something is there and nothing can be read.
        """
        problem: str | None = None
        for path in (self.path, self._backup):
            try:
                text = path.read_text(encoding="utf-8-sig")
                content = _parse(text)
                table = decode(content)
            except FileNotFoundError:
                continue
            except PermissionError as error:
                raise ConfigFileError(self.path, str(error)) from error
            except (OSError, ValueError) as error:
                problem = problem or str(error)
                continue
            self._kept = {name: content[name] for name in content if name not in self._fields}
            if path is self._backup:
                self._restore(text, problem)
            return table
        if problem is not None:
            raise ConfigFileError(self.path, problem)
        return None

    def _restore(self, text: str, problem: str | None) -> None:
        """Put the backup in the file's place, which would else be pushed over it when saving."""
        try:
            if problem is not None:
                durable.move(self.path, self._broken)
                logger.warning("%s: %s; kept as %s", self.path, problem, self._broken.name)
            durable.replace_text(self.path, text)
        except OSError as error:
            raise ConfigFileError(
                self.path, f"{problem or 'missing'}; its backup could not be restored: {error}"
            ) from error
        logger.warning("%s: read from its backup", self.path)

    def save(self, content: Mapping[str, object]) -> None:
        """Replace the content; a table may be given as `Entries`. Blocks, one call at a time.

        Raises OSError; the old content is then still there.
        """
        fields = {
            name: self._table_text(name, value) if isinstance(value, Entries) else value
            for name, value in content.items()
        }
        durable.replace_text(self.path, _to_text({**self._kept, **fields}))

    def _table_text(self, field: str, entries: Entries[Any]) -> _Text:
        """The text of a table; only new entries are encoded."""
        known, texts = self._texts.get(field, {}), {}
        for name in sorted(entries.by_name):
            entry = entries.by_name[name]
            found = known.get(name)
            if found is None or found[0] is not entry:
                found = entry, _field_text(name, entries.encode(entry), "\n\t\t")
            texts[name] = found
        self._texts[field] = texts
        return _Text(_object_text([text for _, text in texts.values()], "\n\t"))


def _parse(text: str) -> Mapping[str, Any]:
    if not text.strip("\0 \t\r\n"):
        raise ValueError("it is empty")
    content = relaxed_json.loads(text)
    if content is None:
        raise ValueError("it holds null")
    return as_object(content)


def _to_text(value: object, line: str = "\n") -> str:
    """JSON in fastjson's shape; `line` begins a line at the indentation of `value`.

    A field a line, by name, without nulls; arrays, and maps from queue ids or levels, on one line.
    """
    if isinstance(value, _Text):
        return value
    if not isinstance(value, Mapping):
        return _ENCODER.encode(value)
    if all(key.isdecimal() for key in value):
        return _numbered_text(value)
    inner = line + "\t"
    fields = [
        _field_text(key, value[key], inner) for key in sorted(value) if value[key] is not None
    ]
    return _object_text(fields, line)


def _field_text(name: str, value: object, line: str) -> str:
    return f"{_ENCODER.encode(name)}:{_to_text(value, line)}"


def _object_text(fields: list[str], line: str) -> str:
    inner = line + "\t"
    return f"{{{inner}{f',{inner}'.join(fields)}{line}}}" if fields else "{}"


def _numbered_text(value: Mapping[str, object]) -> str:
    keys = sorted(value, key=int)
    parts = [
        _ENCODER.encode({key: value[key] for key in keys[start : start + ENCODED_KEYS]})
        for start in range(0, len(keys), ENCODED_KEYS)
    ]
    return f"{{{','.join(part[1:-1] for part in parts)}}}"

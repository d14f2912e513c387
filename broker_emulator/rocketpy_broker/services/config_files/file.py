"""JSON configuration files with a backup, in RocketMQ's shape.

A crash while saving leaves the old or the new content. A file that cannot be read is answered by
its backup: the broken one is kept as `<name>.broken`, and the backup is put in its place. Where
there is no readable backup the broker does not start, since starting with defaults would wipe the
table at the next save.
Source: ConfigManager, docs/design/storage.md section 1 (`.bak`) and section 11.1.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from rocketpy_broker.errors import ConfigFileError
from rocketpy_broker.services.config_files import relaxed_json
from rocketpy_broker.services.config_files.json_fields import as_object
from rocketpy_broker.services.config_files.json_text import field_text, name_text
from rocketpy_broker.services.config_files.table_text import TableText
from rocketpy_broker.store.files import durable

logger = logging.getLogger(__name__)
Table = TypeVar("Table")


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
        """Puts the backup in the file's place, which would else be pushed over it when saving."""
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
        """Replaces the content; a table may be given as its text. Blocks, one call at a time.

        Raises OSError; the old content is then still there.
        """
        durable.replace_encoded(self.path, b"".join(_parts({**self._kept, **content})))


def _parse(text: str) -> Mapping[str, Any]:
    if not text.strip("\0 \t\r\n"):
        raise ValueError("it is empty")
    content = relaxed_json.loads(text)
    if content is None:
        raise ValueError("it holds null")
    return as_object(content)


def _parts(content: Mapping[str, object]) -> Iterator[bytes]:
    """Yields the text of a file: a field a line, by name, without nulls."""
    fields = {name: content[name] for name in sorted(content) if content[name] is not None}
    if not fields:
        yield b"{}"
        return
    before = b"{\n\t"
    for name, value in fields.items():
        yield before
        if isinstance(value, TableText):
            yield name_text(name).encode("ascii")
            yield from value.parts()
        else:
            yield field_text(name, value, "\n\t").encode("ascii")
        before = b",\n\t"
    yield b"\n}"

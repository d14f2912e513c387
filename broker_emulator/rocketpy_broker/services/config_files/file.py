"""JSON configuration files with a backup, in RocketMQ's format.

A crash during a save leaves the old or the new content. A backup replaces an unreadable file, which
is kept as `<name>.broken`. If files exist and none can be read, the broker does not start. A start
with defaults would erase the table at the next save.
Source: ConfigManager, docs/design/storage.md section 1 (`.bak`) and section 11.1.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from rocketpy_broker.errors import ConfigFileError
from rocketpy_broker.services.config_files.json_fields import as_object
from rocketpy_broker.services.config_files.json_text import value_text
from rocketpy_broker.store.files import durable
from rocketpy_proto.remoting.json_text import parse_json

logger = logging.getLogger(__name__)
# The mark that some editors put before UTF-8.
_BOM = b"\xef\xbb\xbf"
Table = TypeVar("Table")


class ConfigFile:
    """One file in `config/`, which holds one JSON object.

    `fields` are fields that the caller reads, saves, or leaves out on purpose. All other fields are
    written back as they were read.
    """

    def __init__(self, path: Path, fields: Collection[str]) -> None:
        self.path = path
        self._backup = path.with_name(path.name + ".bak")
        self._broken = path.with_name(path.name + ".broken")
        self._fields = fields
        self._kept: Mapping[str, object] = {}

    def load(self, decode: Callable[[Mapping[str, Any]], Table]) -> Table | None:
        """Returns `decode` of the content or the backup's content; None if neither file exists.

        A ValueError of `decode` means that the file is broken. Raises ConfigFileError if a file
        exists and none can be read.
        """
        problem: str | None = None
        for path in (self.path, self._backup):
            try:
                data = path.read_bytes()
                content = _parse(data.removeprefix(_BOM))
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
                self._restore(data, problem)
            return table
        if problem is not None:
            raise ConfigFileError(self.path, problem)
        return None

    def _restore(self, data: bytes, problem: str | None) -> None:
        """Copies the backup to the file: else the next save makes the broken file the backup."""
        try:
            if problem is not None:
                durable.move(self.path, self._broken)
                logger.warning("%s: %s; kept as %s", self.path, problem, self._broken.name)
            durable.replace_encoded(self.path, data)
        except OSError as error:
            raise ConfigFileError(
                self.path, f"{problem or 'missing'}; its backup could not be restored: {error}"
            ) from error
        logger.warning("%s: read from its backup", self.path)

    def save(self, content: Mapping[str, object]) -> None:
        """Replaces the content, which has a table as an iterator of its entries' texts. Blocks.

        One call at a time. Raises OSError; then the file keeps the old content.
        """
        durable.replace_encoded(self.path, value_text({**self._kept, **content}, b"\n"))


def _parse(data: bytes) -> Mapping[str, Any]:
    if not data.strip(b"\0 \t\r\n"):
        raise ValueError("it is empty")
    content = parse_json(data, "it is no JSON")
    if content is None:
        raise ValueError("it holds null")
    return as_object(content)

"""A directory that a LocalBroker made for its store, and that goes with it.

A file in it holds a token, which only the two processes know that may remove the directory: the
program that made it, and the broker that it started. The broker removes it when its input ends,
as when the program was killed. Without its token in place a directory is left alone, so a wrong
path, or another's directory of the same name, loses nothing. What is killed before the broker
runs leaves an empty directory.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from pathlib import Path

from rocketpy_broker.errors import BrokerError

PREFIX = "rocketpy-"
OWNER_FILE = "temporary-store"
TOKEN_BYTES = 16


class TemporaryStoreError(BrokerError):
    """A directory that is not the temporary one of this token; it was left alone."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is not the temporary store of this broker; it was left alone")
        self.path = path


class TemporaryStore:
    """A directory and the token that lies in it."""

    def __init__(self, path: Path, token: str) -> None:
        """Raises TemporaryStoreError for a directory without the token."""
        self.path = path
        self.token = token
        if not self._is_ours():
            raise TemporaryStoreError(path)
        self._identity = _identity(path)

    @classmethod
    def make(cls) -> TemporaryStore:
        """Returns a new directory. Raises OSError."""
        path = Path(tempfile.mkdtemp(prefix=PREFIX)).absolute()
        token = secrets.token_hex(TOKEN_BYTES)
        (path / OWNER_FILE).write_text(token, encoding="ascii")
        return cls(path, token)

    def remove(self) -> None:
        """Removes the directory, if it is still the same; files that resist stay."""
        if self._is_ours() and _identity(self.path) == self._identity:
            shutil.rmtree(self.path, ignore_errors=True)

    def _is_ours(self) -> bool:
        try:
            found = (self.path / OWNER_FILE).read_text(encoding="ascii")
        except (OSError, ValueError):
            return False
        return found == self.token and bool(found) and not self.path.is_symlink()


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino

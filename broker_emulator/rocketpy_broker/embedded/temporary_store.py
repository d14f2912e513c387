"""Temporary directory of a LocalBroker's store, removed with the broker.

A file in it holds a token. Only two processes know the token and may remove the directory: the
program that created it and the broker that it started. The broker removes the directory when its
input ends, for instance because the program was killed. A directory without the token is never
removed, so a wrong path loses nothing. A program that is killed before its broker runs leaves an
empty directory.
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
# The segment size of a new store for tests, which is smaller than a broker's.
TEST_SEGMENT_BYTES = 64 << 20


class TemporaryStoreError(BrokerError):
    """Error for a directory without this token; it was not removed."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is not the temporary store of this broker; the broker did not remove it"
        )
        self.path = path


class TemporaryStore:
    """A directory and the token in it."""

    def __init__(self, path: Path, token: str) -> None:
        """Raises TemporaryStoreError for a directory without the token."""
        self.path = path
        self.token = token
        if not self._is_ours():
            raise TemporaryStoreError(path)
        self._identity = _identity(path)

    @classmethod
    def make(cls) -> TemporaryStore:
        """Creates a new directory with its token. Raises OSError."""
        path = Path(tempfile.mkdtemp(prefix=PREFIX)).absolute()
        token = secrets.token_hex(TOKEN_BYTES)
        (path / OWNER_FILE).write_text(token, encoding="ascii")
        return cls(path, token)

    def remove(self) -> None:
        """Removes the directory if it is still the same; skips files that cannot be removed."""
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

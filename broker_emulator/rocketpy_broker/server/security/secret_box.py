"""Encryption of the users' secret keys at rest.

Signatures are HMACs, so the broker needs the secret keys themselves: hashes are not enough. The
encryption key is in a file of its own, which no backup of the store contains.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rocketpy_broker.errors import ConfigFileError
from rocketpy_broker.store.files import durable

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

OTHERS_BITS = 0o077


class SecretBox:
    """Encrypts and decrypts secrets with the key in the file `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fernet: Fernet | None = None

    def encrypt(self, secret: str) -> str:
        """Returns the encrypted secret; creates the key file if it is missing.

        Blocks. Raises ConfigFileError, OSError.
        """
        return self._box(create=True).encrypt(secret.encode()).decode()

    def decrypt(self, text: str) -> str:
        """Returns the secret. Blocks.

        Raises ConfigFileError, or ValueError for a text that another key has encrypted.
        """
        from cryptography.fernet import InvalidToken

        box = self._box(create=False)
        try:
            return box.decrypt(text.encode()).decode()
        except InvalidToken as error:
            reason = "a secret key was encrypted with another key"
            raise ValueError(f"{reason}; restore the old {self.path.name}") from error

    def _box(self, *, create: bool) -> Fernet:
        if self._fernet is None:
            fernet = _fernet_type(self.path)
            if create and not self.path.exists():
                self.path.parent.mkdir(durable.FOLDER_MODE, parents=True, exist_ok=True)
                durable.replace_bytes(self.path, fernet.generate_key())
            self._fernet = self._read(fernet)
        return self._fernet

    def _read(self, fernet: type[Fernet]) -> Fernet:
        try:
            if self.path.stat().st_mode & OTHERS_BITS:
                raise ConfigFileError(
                    self.path, "other users may read it", f"run chmod 600 {self.path}"
                )
            return fernet(self.path.read_bytes())
        except (OSError, ValueError) as error:
            way_out = "restore this file; without it the users' secret keys are lost"
            raise ConfigFileError(self.path, str(error), way_out) from error


def _fernet_type(path: Path) -> type[Fernet]:
    try:
        from cryptography.fernet import Fernet
    except ModuleNotFoundError as error:
        raise ConfigFileError(
            path,
            "the package cryptography is missing",
            "run pip install 'pyspark-rocketpy[security]'",
        ) from error
    return Fernet

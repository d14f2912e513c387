"""The file `rocketpy/storeId`: the identity of the store for clients.

It has two equal lines, each with the id (32 hexadecimal digits) and a CRC. One flipped bit
therefore loses nothing. The first start without the file generates the id, which then never
changes. Only an empty slave takes the id of its master. A copy of the directory has the same id. A
crash leaves the whole file or none; no client has received an id that is not on disk. Each start
reads the file.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from rocketpy_broker.errors import StoreDirectoryError, StoreError
from rocketpy_broker.store.files.copies import replace_copies, sound_copy
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record.crc import body_crc

ID_BYTES = 16


class OtherStoreError(StoreError):
    """The id in a request belongs to another store; nothing was done."""

    code = ResponseCode.NOT_LEADER_FOR_QUEUE

    def __init__(self, wanted: str, own: str) -> None:
        super().__init__(
            f"the request is for store {wanted:.200}, but this broker has store {own}: another "
            "broker answered, or the broker has another data directory than before. Set endpoints "
            "to the addresses of one broker, or start the broker with the directory whose file "
            "rocketpy/storeId has the requested id. Or start the query with a new "
            "checkpointLocation"
        )
        self.wanted = wanted
        self.own = own


def load_or_generate(path: Path) -> str:
    """Returns the store's id, generated if there is no file. Raises StoreDirectoryError, OSError.

    After an error no client has received an id.
    """
    if not path.exists():
        return generate(path)
    length = len(_line_of("0" * 2 * ID_BYTES))
    line = sound_copy(path, path.read_bytes(), length, lambda line: line == _line_of(_id_in(line)))
    if line is not None:
        return _id_in(line)
    raise StoreDirectoryError(
        path,
        "is damaged",
        "restore it from a copy of the directory, or remove it to get a new id. Queries with an "
        "old checkpoint refuse a new id",
    )


def generate(path: Path) -> str:
    """Generates an id, saves it in place of an older one, and returns it. Raises OSError."""
    drawn = secrets.token_hex(ID_BYTES)
    save(path, drawn)
    return drawn


def save(path: Path, store_id: str) -> None:
    """Saves an id in place of an older one. Raises OSError."""
    replace_copies(path, _line_of(store_id))


def _id_in(line: bytes) -> str:
    return line[: 2 * ID_BYTES].decode("ascii", "replace")


def _line_of(store_id: str) -> bytes:
    data = store_id.encode()
    return data + f" {body_crc(data):08x}\n".encode()

"""The newest records that a walk over the index finds."""

from __future__ import annotations

from collections.abc import Iterator

from rocketpy_broker.runtime.scheduler import take_slot


async def newest_records(walk: Iterator[memoryview | None], bytes_max: int) -> list[bytes]:
    """Returns copies of the first records of a walk, oldest first.

    They have at most `bytes_max` bytes, but the first record may have any size. Each step of the
    walk has a scheduler slot, since a long record takes milliseconds. Raises StoreReadError.
    """
    found: list[bytes] = []
    bytes_left = bytes_max
    await take_slot("lookup")
    for record in walk:
        if record is not None:
            bytes_left -= len(record)
            if found and bytes_left < 0:
                break
            found.append(bytes(record))
        await take_slot("lookup")
    return found[::-1]

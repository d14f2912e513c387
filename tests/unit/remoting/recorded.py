"""Frames that real servers and clients exchanged, from the files beside the repository.

Each file is one exchange: the bytes of both frames, and their meaning.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from rocketpy_proto.remoting import FrameDecoder, RemotingCommand
from tests.support.golden import GOLDEN

needs_golden = pytest.mark.skipif(not GOLDEN.exists(), reason="the golden frames are not here")


@dataclass(frozen=True)
class RecordedFrame:
    """One direction of an exchange."""

    exchange: str
    is_request: bool
    encoded: bytes
    meaning: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.exchange}-{'request' if self.is_request else 'response'}"

    @property
    def is_by_java(self) -> bool:
        return not self.is_request or self.exchange[0] in "JS"

    def command(self) -> RemotingCommand:
        (command,) = FrameDecoder().feed(self.encoded)
        return command


def _frames() -> Iterator[RecordedFrame]:
    for path in sorted((GOLDEN / "remoting").glob("*.json")):
        exchange = json.loads(path.read_text("utf-8"))
        for side in ("request", "response"):
            if encoded := exchange[f"{side}_hex"]:
                frame = bytes.fromhex(encoded)
                yield RecordedFrame(path.stem, side == "request", frame, exchange[side])


FRAMES = list(_frames())
EXCHANGES = {frame.name: frame for frame in FRAMES}
each_frame = pytest.mark.parametrize("frame", FRAMES, ids=[frame.name for frame in FRAMES])


def request(exchange: str) -> RemotingCommand:
    return EXCHANGES[f"{exchange}-request"].command()


def response(exchange: str) -> RemotingCommand:
    return EXCHANGES[f"{exchange}-response"].command()

"""Frames of RocketMQ's own servers and clients, read and written again."""

from __future__ import annotations

import json
from pathlib import Path

from rocketpy_proto.remoting import FrameDecoder, RemotingCommand, Serialization, encode_frame
from rocketpy_proto.remoting.frames import decode_frame
from tests.support.golden import GOLDEN
from tests.unit.remoting.recorded import FRAMES, RecordedFrame, each_frame, needs_golden

pytestmark = needs_golden


def sorted_header(encoded: bytes) -> bytes:
    """Returns a frame with a JSON header, its fields ordered by name, in Java's notation."""
    header_end = 8 + int.from_bytes(encoded[5:8], "big")
    header = json.loads(encoded[8:header_end])
    if not header.get("extFields"):
        header.pop("extFields", None)
    ordered = dict(sorted(header.items()))
    text = json.dumps(ordered, separators=(",", ":"), ensure_ascii=False).encode()
    return text + encoded[header_end:]


def test_every_exchange_was_found() -> None:
    assert len(FRAMES) > 110
    folder: Path = GOLDEN / "remoting"
    assert {frame.exchange for frame in FRAMES} == {path.stem for path in folder.glob("*.json")}


@each_frame
def test_a_frame_means_what_was_written_down(frame: RecordedFrame) -> None:
    command = frame.command()
    meaning = frame.meaning
    assert command.code == meaning["code"]
    assert command.serialization == meaning["serialize_type"]
    assert dict(command.ext_fields) == (meaning["extFields"] or {})
    assert (command.remark or None) == (meaning.get("remark") or None)
    assert command.body == bytes.fromhex(meaning["body_hex"])
    assert command.is_response is not frame.is_request


@each_frame
def test_a_frame_is_written_as_it_came(frame: RecordedFrame) -> None:
    command = frame.command()
    written = b"".join(encode_frame(command))
    if command.serialization is Serialization.ROCKETMQ:
        assert written == frame.encoded
    else:
        # JSON does not define the order of its fields; the rest is the same, byte for byte.
        assert sorted_header(written) == sorted_header(frame.encoded)
        if not frame.is_by_java and b'"extFields":{}' not in frame.encoded:
            assert written == frame.encoded


@each_frame
def test_a_frame_may_be_cut_anywhere(frame: RecordedFrame) -> None:
    whole = decode_frame(memoryview(frame.encoded))
    step = max(1, len(frame.encoded) // 64)
    for cut in {*range(16), *range(16, len(frame.encoded), step)}:
        decoder = FrameDecoder()
        assert list(decoder.feed(frame.encoded[:cut])) == []
        assert bool(decoder.begun_bytes) is (cut > 0)
        assert list(decoder.feed(frame.encoded[cut:])) == [whole]
        assert not decoder.begun_bytes


def test_frames_are_cut_from_one_run_of_bytes_whatever_its_pieces() -> None:
    run = b"".join(frame.encoded for frame in FRAMES)
    commands = [frame.command() for frame in FRAMES]
    for size in (1, 7, 1000, len(run)):
        decoder = FrameDecoder()
        found: list[RemotingCommand] = []
        for begin in range(0, len(run), size):
            found += decoder.feed(run[begin : begin + size])
        assert found == commands

"""Hostile peers: any input raises one error, and memory is bounded by the received bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from rocketpy_proto.remoting import (
    EXCHANGES,
    FrameDecoder,
    RemotingCommand,
    RemotingFormatError,
    RequestCode,
    decode_body,
    encode_frame,
)
from rocketpy_proto.remoting.batches import decode_batch
from rocketpy_proto.remoting.bodies import REQUEST_BODIES, RESPONSE_BODIES
from rocketpy_proto.remoting.bodies.registration import decode_compressed
from tests.unit.remoting.recorded import FRAMES, needs_golden

RECORDED = [frame.encoded for frame in FRAMES]
# Tokens that are valid in any place, with another meaning in each.
TOKENS = [
    *(b"{", b"}", b"[", b"]", b":", b",", b'"', b"\\", b"null", b"-", b"0", b"\0", b"\xff"),
    *(
        b"\\ud800",
        b"9" * 30,
        b"1e999",
        b'{"$ref":"$"}',
        b"[" * 200,
        b'{"a":' * 200,
        b"\xed\xa0\x80",
    ),
    *(b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0"),
]
EDITS = st.lists(
    st.tuples(
        st.integers(0, 4000), st.integers(0, 8), st.binary(max_size=6) | st.sampled_from(TOKENS)
    ),
    min_size=1,
    max_size=4,
)


def edited(encoded: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    for at, removed, added in edits:
        at %= len(encoded) + 1  # noqa: PLW2901
        encoded = encoded[:at] + added + encoded[at + removed :]
    return encoded


def with_length(frame: bytes) -> bytes:
    """Returns the frame with a correct length, so that its content is read."""
    return (len(frame) - 4).to_bytes(4, "big") + frame[4:] if len(frame) >= 8 else frame


def look_at_all_of(command: RemotingCommand) -> None:
    """Reads the command in every way that its code allows."""
    code = RequestCode(command.code if command.code in EXCHANGES else RequestCode.PULL_MESSAGE)
    for form in (EXCHANGES[code].request, EXCHANGES[code].response):
        with suppress(RemotingFormatError):
            form.decode(command.ext_fields)
    for kind in (*REQUEST_BODIES.values(), *RESPONSE_BODIES.values()):
        with suppress(RemotingFormatError):
            decode_body(kind, command.body)
    for decode in (decode_batch, decode_compressed):
        with suppress(RemotingFormatError):
            decode(command.body)
    encode_frame(command)


def received(pieces: Iterable[bytes]) -> Iterator[RemotingCommand]:
    decoder = FrameDecoder()
    for piece in pieces:
        with suppress(RemotingFormatError):
            yield from decoder.feed(piece)


@given(st.lists(st.binary(max_size=60), max_size=4))
def test_random_bytes_are_refused_or_wait(pieces: list[bytes]) -> None:
    for command in received(pieces):
        look_at_all_of(command)


@needs_golden
@given(st.sampled_from(RECORDED or [b""]), EDITS, st.booleans(), st.integers(0, 4000))
def test_changed_frames_are_read_or_refused(
    frame: bytes, edits: list[tuple[int, int, bytes]], is_length_right: bool, cut: int
) -> None:
    changed = edited(frame, edits)
    if is_length_right:
        changed = with_length(changed)
    for command in received((changed[:cut], changed[cut:])):
        look_at_all_of(command)


@needs_golden
@given(st.sampled_from(RECORDED or [b""]), EDITS)
def test_changed_bodies_are_read_or_refused(
    frame: bytes, edits: list[tuple[int, int, bytes]]
) -> None:
    (command,) = FrameDecoder().feed(frame)
    body = edited(bytes(command.body), edits)
    look_at_all_of(RemotingCommand(command.code, 1, ext_fields=command.ext_fields, body=body))

"""Frames: their limits, shared and uncopied data, and guarantees for each end."""

from __future__ import annotations

import pickle
import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rocketpy_proto.remoting import (
    FRAME_BYTES_MAX,
    FrameDecoder,
    Language,
    RemotingCommand,
    RemotingFormatError,
    RequestCode,
    ResponseCode,
    Serialization,
    UnencodableRemotingError,
    encode_frame,
)
from rocketpy_proto.remoting.frames import decode_frame
from tests.unit.remoting.strategies import COMMANDS

EMPTY = RemotingCommand(RequestCode.HEART_BEAT, opaque=1)


def decode(encoded: bytes) -> RemotingCommand:
    (command,) = FrameDecoder().feed(encoded)
    return command


def frame_of(header: bytes, form: int = 0) -> bytes:
    return struct.pack(">iBBH", 4 + len(header), form, 0, len(header)) + header


@given(st.lists(COMMANDS, max_size=4), st.integers(1, 50))
def test_what_was_encoded_is_decoded(commands: list[RemotingCommand], size: int) -> None:
    run = b"".join(piece for command in commands for piece in encode_frame(command))
    decoder = FrameDecoder()
    found: list[RemotingCommand] = []
    for begin in range(0, len(run), size):
        found += decoder.feed(run[begin : begin + size])
    assert found == commands


@pytest.mark.parametrize("cuts", [(), (3,), (100,), (100, 200)])
def test_a_body_is_a_view_for_reading_of_what_was_fed(cuts: tuple[int, ...]) -> None:
    encoded = b"".join(encode_frame(replace(EMPTY, body=bytes(1000))))
    decoder = FrameDecoder()
    bounds = (0, *cuts, len(encoded))
    for begin, end in pairwise(bounds):
        commands = list(decoder.feed(encoded[begin:end]))
    body = commands[0].body
    assert isinstance(body, memoryview)
    assert body.readonly
    assert body.nbytes == 1000
    if not cuts:
        assert body.obj is encoded


def test_a_body_is_not_copied_into_its_frame() -> None:
    body = memoryview(bytes(1 << 20))
    assert encode_frame(replace(EMPTY, body=body))[1] is body


def test_an_answer_has_the_requests_number_and_form() -> None:
    request = replace(EMPTY, opaque=-7, serialization=Serialization.ROCKETMQ)
    answer = request.answer(ResponseCode.SYSTEM_BUSY, remark="later", body=b"x")
    assert decode(b"".join(encode_frame(answer))) == answer
    assert (answer.opaque, answer.serialization) == (-7, Serialization.ROCKETMQ)
    assert answer.is_response
    assert not answer.is_one_way
    assert not request.is_response


def test_the_example_of_the_binary_form_is_read() -> None:
    command = decode(
        bytes.fromhex(
            "0000002a010000260069 00 01df 00000009 00000000 00000000 00000011"
            "0005 746f706963 00000006 50726f626554"
        )
    )
    assert command == RemotingCommand(
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        opaque=9,
        language=Language.JAVA,
        version=479,
        ext_fields={"topic": "ProbeT"},
        serialization=Serialization.ROCKETMQ,
    )


def test_the_largest_frame_is_taken_and_a_larger_one_refused_before_it_comes() -> None:
    assert list(FrameDecoder().feed(struct.pack(">i", FRAME_BYTES_MAX - 4))) == []
    decoder = FrameDecoder()
    with pytest.raises(RemotingFormatError, match="16777217 bytes, accepted: 8 to 16777216"):
        list(decoder.feed(struct.pack(">i", FRAME_BYTES_MAX - 3) + bytes(100)))
    assert not decoder.begun_bytes


def test_a_header_has_a_bound_of_its_own() -> None:
    encoded = encode_frame(replace(EMPTY, remark="r" * 100, body=bytes(1000)))
    size = len(encoded[0]) - 8
    whole = b"".join(encoded)
    assert len(list(FrameDecoder(header_bytes_max=size).feed(whole))) == 1
    with pytest.raises(RemotingFormatError, match=f"{size} bytes, limit {size - 1}$"):
        list(FrameDecoder(header_bytes_max=size - 1).feed(whole))


def test_a_frame_that_nobody_would_take_is_not_written() -> None:
    size = len(encode_frame(EMPTY)[0])
    assert len(encode_frame(replace(EMPTY, body=bytes(FRAME_BYTES_MAX - size)))) == 2
    with pytest.raises(UnencodableRemotingError, match="16777217 bytes"):
        encode_frame(replace(EMPTY, body=bytes(FRAME_BYTES_MAX - size + 1)))


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 3])
def test_a_length_below_the_headers_is_refused(length: int) -> None:
    with pytest.raises(RemotingFormatError):
        list(FrameDecoder().feed(struct.pack(">i", length)))


def test_commands_before_bad_bytes_are_given_and_nothing_after_them() -> None:
    good = b"".join(encode_frame(EMPTY))
    decoder = FrameDecoder()
    commands = decoder.feed(good + good + bytes(8) + good)
    assert [next(commands), next(commands)] == [EMPTY, EMPTY]
    for _ in range(2):
        with pytest.raises(RemotingFormatError):
            next(commands)
        commands = decoder.feed(good)
    assert not decoder.begun_bytes


def test_commands_that_nobody_took_are_given_later() -> None:
    good = b"".join(encode_frame(EMPTY))
    decoder = FrameDecoder()
    decoder.feed(good + good)
    assert list(decoder.feed(good[:5])) == [EMPTY, EMPTY]
    assert list(decoder.feed(good[5:])) == [EMPTY]


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"null",
        b"[]",
        b"{}",  # an answer would not be identified by its number
        b'{"opaque":1',
        b'{"opaque":1}x',
        b'{"opaque":2147483648}',
        b'{"opaque":' + b"9" * 5000 + b"}",
        b'{"opaque":1,"code":"ten"}',
        b'{"opaque":1,"remark":"\xff"}',
        b'{"opaque":1,"remark":"\\ud800"}',
        b'{"opaque":1,"extFields":{"a":{}}}',
        b'{"opaque":1,"x":' + b"[" * 1_000_000 + b"}",
        b'{"opaque":1,"x":' + b'{"a":' * 1_000_000 + b"}",
        b'{"opaque":1,"x":' + b"[" * 65 + b"]" * 65 + b"}",
    ],
)
def test_a_json_header_is_read_strictly(header: bytes) -> None:
    length = struct.pack(">i", 4 + len(header)) + b"\0" + len(header).to_bytes(3, "big")
    with pytest.raises(RemotingFormatError):
        list(FrameDecoder().feed(length + header))


def test_a_json_header_may_have_what_java_takes() -> None:
    header = (
        b'{"opaque":"-3","code":"11","language":"COBOL","later":{"a":[1]},"remark":null,'
        b'"extFields":{"n":1,"t":true,"none":null,"s":"null","n":2}}'
    )
    command = decode(frame_of(header))
    assert (command.code, command.opaque, command.language) == (11, -3, Language.OTHER)
    assert command.ext_fields == {"n": "2", "t": "true", "s": "null"}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (b'"CPP"', Language.CPP),
        (b'"cpp"', Language.CPP),
        (b"1", Language.CPP),
        (b"99", Language.OTHER),
        (b"null", Language.OTHER),
        (b"{}", Language.OTHER),
    ],
)
def test_a_json_header_may_name_a_language_by_its_number(written: bytes, read: Language) -> None:
    assert decode(frame_of(b'{"opaque":1,"language":%s}' % written)).language is read


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (b"", "unpack_from"),
        (b"\0\0\0\1", "0 are left"),
        (b"\0\0\0\1\xff\0\0\0\0", "utf-8"),
        (b"\xff\xff\xff\xff\0\0\0\0", "-1 bytes"),
        (bytes(8) + b"x", "end at byte"),
        (bytes(4) + b"\0\0\0\2\x7f\xff", "32767 bytes, but 0 are left"),
        (bytes(4) + b"\x7f\xff\xff\xff", "2147483647 bytes"),
        (bytes(4) + b"\0\0\0\3\0\1a", "unpack_from"),
    ],
)
def test_a_binary_header_with_lengths_that_lie_is_refused(tail: bytes, reason: str) -> None:
    with pytest.raises(RemotingFormatError, match=reason):
        list(FrameDecoder().feed(frame_of(bytes(13) + tail, form=1)))


def test_a_binary_header_may_have_a_language_that_nobody_knows_and_nulls() -> None:
    fields = b"\0\1a" + bytes(4) + b"\0\0" + b"\0\0\0\1b" + b"\0\1c" + b"\0\0\0\1d"
    head = b"\0\x0b\x7f" + bytes(10)
    command = decode(frame_of(head + bytes(4) + struct.pack(">i", len(fields)) + fields, form=1))
    assert (command.code, command.language, command.remark) == (11, Language.OTHER, None)
    assert command.ext_fields == {"c": "d"}


def test_less_than_a_frame_is_none() -> None:
    with pytest.raises(RemotingFormatError, match="7 bytes, but needs at least 8"):
        decode_frame(memoryview(bytes(7)))


def test_an_unknown_form_or_a_header_beyond_its_frame_is_refused() -> None:
    for encoded, reason in (
        (frame_of(b"{}", form=2), "unknown serialization type 2"),
        (struct.pack(">iI", 4, 1), "byte 9 of 8"),
    ):
        with pytest.raises(RemotingFormatError, match=reason):
            list(FrameDecoder().feed(encoded))


@pytest.mark.parametrize(
    "command",
    [
        replace(EMPTY, code=RequestCode.POP_MESSAGE, serialization=Serialization.ROCKETMQ),
        replace(EMPTY, opaque=1 << 31, serialization=Serialization.ROCKETMQ),
        replace(EMPTY, remark="\ud800", serialization=Serialization.ROCKETMQ),
        replace(EMPTY, opaque=1 << 31),
        replace(EMPTY, remark="\ud800"),
        replace(EMPTY, ext_fields={"a": "\ud800"}),
        replace(EMPTY, ext_fields={"a": "x" * (1 << 24)}),
    ],
)
def test_a_command_that_does_not_fit_is_declared(command: RemotingCommand) -> None:
    with pytest.raises(UnencodableRemotingError):
        encode_frame(command)


def test_an_error_says_what_and_why_also_behind_a_process() -> None:
    error = pickle.loads(pickle.dumps(RemotingFormatError("frame", "too long")))
    assert (error.what, error.reason, str(error)) == ("frame", "too long", "frame: too long")

r"""RocketMQ's JSON: fastjson's dialect is read, standard JSON is written.

fastjson writes two things that are not JSON: number keys (`{0:"host"}`), and object keys
(`{{"queueId":1}:{}}`). The reader turns both into strings (`"0"`, `"{\"queueId\":1}"`), and leaves
the rest to msgspec. It accepts no other deviation. It finds keys in an outline of the text: the
same length, with every string blanked out. So a string's content is never taken for a key.

Time is linear in the text. Depth is checked before any recursion. Source: docs/design/remoting.md
section 4.1.
"""

from __future__ import annotations

import re
from itertools import accumulate

import msgspec

from rocketpy_proto.remoting.errors import RemotingFormatError

# RocketMQ's own bodies have a depth of five.
DEPTH_MAX = 64
# The errors that msgspec was seen to raise. Up to 0.21 its own errors are no ValueErrors, but
# UnicodeDecodeError is one.
DECLARED_BY_PARSERS = (msgspec.MsgspecError, ValueError, RecursionError)

_STRING = re.compile(rb'"[^"]*"')
_ODD_KEY = re.compile(rb"\{[^{}]*\}(?=\s*:)|(?<=[{,])\s*-?[0-9]+(?=\s*:)")
# fastjson's reference to an object earlier in the text. Inside of a string its quotes are escaped.
_REFERENCE = re.compile(rb'"\$ref"\s*:')
_STEPS = dict(zip(b"{[]}", (1, 1, -1, -1), strict=True))
_NOT_BRACKETS = bytes(set(range(256)) - set(_STEPS))


def read_json(data: bytes | memoryview, what: str) -> object:
    """Returns the value in `data`, keys as strings.

    Raises RemotingFormatError, which names `what`. It refuses a reference (`{"$ref":...}`), since
    no server was seen to send one.
    """
    text = bytes(data)
    outline = _outline(text)
    _check_depth(outline, what)
    if _REFERENCE.search(text):
        raise RemotingFormatError(what, "it has a reference ($ref), which nobody resolves")
    try:
        value: object = msgspec.json.decode(_with_string_keys(text, outline))
    except DECLARED_BY_PARSERS as error:
        raise format_error(what, error) from error
    return value


def check_depth(data: memoryview, what: str) -> None:
    """Raises RemotingFormatError if brackets are nested deeper than DEPTH_MAX."""
    text = bytes(data)
    if text.count(b"{") + text.count(b"[") > DEPTH_MAX:
        _check_depth(_outline(text), what)


def format_error(what: str, error: Exception) -> RemotingFormatError:
    """Returns a parser's error as a RemotingFormatError."""
    return RemotingFormatError(what, str(error))


def _outline(text: bytes) -> bytes:
    """Returns `text` with the contents of its strings blanked out."""
    plain = text.replace(rb"\\", b"  ").replace(rb"\"", b"  ")
    return _STRING.sub(lambda found: b'"' + b" " * (len(found[0]) - 2) + b'"', plain)


def _check_depth(outline: bytes, what: str) -> None:
    """Raises RemotingFormatError above DEPTH_MAX; msgspec checks that brackets match."""
    steps = map(_STEPS.__getitem__, outline.translate(None, _NOT_BRACKETS))
    if max(accumulate(steps), default=0) > DEPTH_MAX:
        raise RemotingFormatError(what, f"it is nested deeper than {DEPTH_MAX}")


def _with_string_keys(text: bytes, outline: bytes) -> bytes:
    pieces = []
    position = 0
    for key in _ODD_KEY.finditer(outline):
        begin, end = key.span()
        pieces += [text[position:begin], _quoted(text[begin:end].strip())]
        position = end
    return b"".join((*pieces, text[position:])) if pieces else text


def _quoted(key: bytes) -> bytes:
    return b'"' + key.replace(b"\\", rb"\\").replace(b'"', rb"\"") + b'"'

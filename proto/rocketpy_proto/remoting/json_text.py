r"""The reader of RocketMQ's JSON, which is fastjson's dialect.

fastjson writes two things that are not JSON: number keys (`{0:"host"}`), and object keys
(`{{"queueId":1}:{}}`). The reader turns both into strings (`"0"`, `"{\"queueId\":1}"`). It also
reads some other text that fastjson 1.2.83 was seen to read in files: single quotes, a comma before
a closing bracket, and the white space \f and \b. It accepts no other deviation. A text that is cut,
or followed by more than white space, is an error and never a shorter value.

Standard JSON is read by msgspec alone. Other text is first rewritten token by token: a string is
one token, so its content is never taken for a key. Time is linear in the text. Depth is checked
before any recursion. Source: docs/design/remoting.md section 4.1, docs/design/storage.md section
11.1.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate

import msgspec

from rocketpy_proto.remoting.errors import RemotingFormatError

# RocketMQ's own bodies have a depth of five.
DEPTH_MAX = 64
# The errors that msgspec was seen to raise. Up to 0.21 its own errors are no ValueErrors, but
# UnicodeDecodeError is one.
DECLARED_BY_PARSERS = (msgspec.MsgspecError, ValueError, RecursionError)

_SPACE = rb"[ \t\r\n\f\x08]*"
_OPEN_STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*'
# A string without an end is one token, too: otherwise each quote in it would start a new search.
_STRING = _OPEN_STRING + rb'(?:"|\\?\Z)'
_TOKEN = re.compile(
    _STRING + rb"|'(?P<single>[^'\\]*(?:\\.[^'\\]*)*)(?:'|\\?\Z)"
    rb"|(?P<object>\{[^{}\"']*(?:" + _OPEN_STRING + rb"\"[^{}\"']*)*\})(?=" + _SPACE + rb":)"
    rb"|(?<=[{,])" + _SPACE + rb"(?P<number>-?[0-9]+)(?=" + _SPACE + rb":)"
    rb"|(?<=[]\w\"'}])" + _SPACE + rb"(?P<comma>,)(?=" + _SPACE + rb"[]}])"
    rb"|(?P<space>[\f\x08])",
    re.DOTALL,
)
# A single-quoted text escapes single quotes but not double quotes; JSON does the opposite.
_QUOTES = re.compile(rb"""\\.|["]""", re.DOTALL)
_REQUOTED = {rb"\'": b"'", b'"': rb"\""}
_ANY_STRING = re.compile(_STRING, re.DOTALL)
# fastjson's reference to an object earlier in the text. Inside of a string its quotes are escaped.
_REFERENCE = re.compile(rb'"\$ref"\s*:')
_STEPS = dict(zip(b"{[]}", (1, 1, -1, -1), strict=True))
_NOT_BRACKETS = bytes(set(range(256)) - set(_STEPS))


def read_json(data: bytes | memoryview, what: str) -> object:
    """Returns the value in `data`, keys as strings.

    Raises RemotingFormatError, which names `what`, also for a reference.
    """
    check_references(data, what)
    return _parse(bytes(data), what)


def check_references(data: bytes | memoryview, what: str) -> None:
    """Raises RemotingFormatError for a reference (`{"$ref":...}`).

    Only ACLs of RocketMQ 5.3 were seen with references; `bodies.auth` resolves them.
    """
    if _REFERENCE.search(data):
        raise RemotingFormatError(what, "it has a reference ($ref), which is not supported")


def parse_json(text: bytes, what: str) -> object:
    """Returns the value of a file, as `read_json` does.

    A reference is an object like any other. Half of a surrogate pair is a character: fastjson
    writes it for a name that is not Unicode.
    """
    try:
        return _parse(text, what)
    except RemotingFormatError as error:
        if "surrogate" not in error.reason:
            raise
    try:
        value: object = json.loads(_TOKEN.sub(_standard, text))
    except DECLARED_BY_PARSERS as error:
        raise format_error(what, error) from error
    return value


def _parse(text: bytes, what: str) -> object:
    try:
        return _decode(text, what)
    except RemotingFormatError as error:
        standard = _TOKEN.sub(_standard, text)
        if standard == text:
            raise error from None
    return _decode(standard, what)


def check_depth(data: bytes | memoryview, what: str) -> None:
    """Raises RemotingFormatError if brackets are nested deeper than DEPTH_MAX."""
    text = bytes(data)
    if text.count(b"{") + text.count(b"[") > DEPTH_MAX:
        brackets = _ANY_STRING.sub(b"", text).translate(None, _NOT_BRACKETS)
        if max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > DEPTH_MAX:
            raise RemotingFormatError(what, f"it is nested too deeply, limit {DEPTH_MAX}")


def format_error(what: str, error: Exception) -> RemotingFormatError:
    """Returns a parser's error as a RemotingFormatError."""
    return RemotingFormatError(what, str(error))


def _decode(text: bytes, what: str) -> object:
    check_depth(text, what)
    try:
        value: object = msgspec.json.decode(text)
    except DECLARED_BY_PARSERS as error:
        raise format_error(what, error) from error
    return value


def _standard(token: re.Match[bytes]) -> bytes:
    """Returns a token as standard JSON; a token of any other kind is unchanged."""
    kind, text = token.lastgroup, token[0]
    if kind == "single" and text.endswith(b"'") and len(text) > 1:
        inner = _QUOTES.sub(lambda found: _REQUOTED.get(found[0], found[0]), token["single"])
        return b'"' + inner + b'"'
    if kind in {"object", "number"}:
        key = token[kind].replace(b"\\", rb"\\").replace(b'"', rb"\"")
        return b'"' + key + b'"'
    return b"" if kind == "comma" else b" " if kind == "space" else text

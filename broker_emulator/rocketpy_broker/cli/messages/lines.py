"""Messages of a file, one JSON object or body per line.

    {"body": "…", "tags": "paid", "keys": ["order-17"], "properties": {"shop": "3"}, "queueId": 0}

`bodyBase64` may replace `body`. `delayLevel` or `deliverAt` delays the message. Other fields of
`message tail --json` are ignored. A file is read twice, so that a bad line is found before the
first send. Input that cannot be read twice is copied to a temporary file.
"""

from __future__ import annotations

import base64
import binascii
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import IO

from rocketpy_broker.cli.times import parsed_time
from rocketpy_broker.client.messages.model import OutgoingMessage, WaitArguments, fault_of_wait
from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.clock import SystemClock

STANDARD_INPUT = "-"
LINE_BYTES_MAX = 64 << 20
COPIED_BYTES_MAX, COPY_BYTES = 1 << 30, 1 << 20
FAULTS_SHOWN_MAX = 10
BODY, BODY_BASE64 = "body", "bodyBase64"
_TAKEN = (BODY, BODY_BASE64, "tags", "keys", "properties", "queueId", "delayLevel", "deliverAt")
_PASSED_OVER = frozenset(
    {"topic", "queueOffset", "msgId", "offsetMsgId", "bornTimestamp", "storeTimestamp"}
    | {"reconsumeTimes"}
)
Fault = Callable[[OutgoingMessage], str | None]
Parse = Callable[[bytes], OutgoingMessage]


class MessageLineError(BrokerError):
    """Error for lines that are not messages; nothing was sent."""


@contextmanager
def open_lines(path: str, template: OutgoingMessage | None = None) -> Iterator[MessageLines]:
    """Opens a file or standard input; yields its lines. Raises MessageLineError.

    With a `template` each line is a body; the other fields are the template's.
    """
    parse = json_message if template is None else partial(_with_body, template)
    with ExitStack() as closing:
        try:
            if path == STANDARD_INPUT:
                file: IO[bytes] = sys.stdin.buffer
            else:
                file = closing.enter_context(Path(path).open("rb"))
            if path == STANDARD_INPUT or not file.seekable():
                file = _copied(file, closing.enter_context(tempfile.TemporaryFile()))
        except OSError as error:
            raise MessageLineError(f"{path} cannot be read ({error.strerror})") from error
        yield MessageLines(path, file, parse)


def standard_input(bytes_max: int) -> bytes:
    """Returns the bytes of standard input. Raises MessageLineError above `bytes_max`."""
    content = sys.stdin.buffer.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise MessageLineError(
            f"standard input is too long for a body, limit {bytes_max} bytes. Send it in parts, "
            "or as lines with --lines"
        )
    return content


def _with_body(template: OutgoingMessage, line: bytes) -> OutgoingMessage:
    return replace(template, body=line.removesuffix(b"\n").removesuffix(b"\r"))


def _copied(file: IO[bytes], copy: IO[bytes]) -> IO[bytes]:
    """Copies a file; returns the copy. Raises MessageLineError above COPIED_BYTES_MAX."""
    while piece := file.read(COPY_BYTES):
        copy.write(piece)
        if copy.tell() > COPIED_BYTES_MAX:
            raise MessageLineError(
                "nothing was sent: standard input is too long to be checked first, limit "
                f"{COPIED_BYTES_MAX} bytes. Send it in parts, or as a file"
            )
    return copy


class MessageLines:
    """The messages of a file that can be read twice."""

    def __init__(self, path: str, file: IO[bytes], parse: Parse) -> None:
        self._path = path
        self._file = file
        self._parse = parse

    def check(self, fault: Fault) -> int:
        """Checks every line; returns the number of messages. Raises MessageLineError."""
        count = 0
        faults: list[str] = []
        for number, line in self._lines():
            count += 1
            try:
                reason = fault(self._message(line))
            except ValueError as error:
                reason = str(error)
            if reason is not None:
                faults.append(f"line {number}: {reason}")
            if len(faults) > FAULTS_SHOWN_MAX:
                faults[-1] = "there are more such lines"
                break
        if faults:
            listed = "\n  ".join(faults)
            raise MessageLineError(f"nothing of {self._path} was sent: {listed}")
        return count

    def messages(self) -> Iterator[OutgoingMessage]:
        """Yields the messages in order.

        Raises MessageLineError if the file has changed since `check`.
        """
        for number, line in self._lines():
            try:
                yield self._message(line)
            except ValueError as error:
                raise MessageLineError(
                    f"{self._path} has changed: line {number}: {error}"
                ) from error

    def _message(self, line: bytes) -> OutgoingMessage:
        """Returns the message of a line. Raises ValueError with the fault."""
        if len(line) == LINE_BYTES_MAX and not line.endswith(b"\n"):
            raise ValueError(f"is longer than {LINE_BYTES_MAX} bytes")
        return self._parse(line)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Yields lines with their numbers from 1, without empty lines."""
        self._file.seek(0)
        number = 0
        while line := self._file.readline(LINE_BYTES_MAX):
            number += 1
            if line.strip():
                yield number, line
            while not line.endswith(b"\n") and len(line) == LINE_BYTES_MAX:
                # The rest of an overlong line is skipped.
                line = self._file.readline(LINE_BYTES_MAX)


def json_message(line: bytes) -> OutgoingMessage:
    """Returns the message of a JSON object. Raises ValueError with the fault."""
    try:
        fields = json.loads(line)
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"is no JSON ({error})") from error
    if not isinstance(fields, dict):
        raise _wrong("it", fields, "a JSON object")
    unknown = fields.keys() - {*_TAKEN, *_PASSED_OVER}
    if unknown:
        raise ValueError(f"unknown field {min(unknown)!r}; accepted are {', '.join(_TAKEN)}")
    return OutgoingMessage(
        _body(fields),
        _tags(fields.get("tags")),
        _keys(fields.get("keys")),
        _properties(fields.get("properties")),
        _number("queueId", fields.get("queueId")),
        _number("delayLevel", fields.get("delayLevel")) or 0,
        _deliver_at(fields.get("deliverAt")),
    )


def _body(fields: dict[str, object]) -> bytes:
    if (BODY in fields) == (BODY_BASE64 in fields):
        raise ValueError(f"needs one of {BODY} and {BODY_BASE64}")
    name = BODY if BODY in fields else BODY_BASE64
    text = fields[name]
    if not isinstance(text, str):
        raise _wrong(name, text, "a text")
    try:
        return text.encode() if name == BODY else base64.b64decode(text, validate=True)
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} is not valid Unicode") from error
    except binascii.Error as error:
        raise ValueError(f"{name} is no base64 ({error})") from error


def _tags(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise _wrong("tags", value, "a text")


def _keys(value: object) -> tuple[str, ...]:
    keys = [] if value is None else value
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise _wrong("keys", value, "a list of texts")
    return tuple(keys)


def _properties(value: object) -> dict[str, str]:
    properties = {} if value is None else value
    if not isinstance(properties, dict):
        raise _wrong("properties", value, "an object of texts")
    for name, text in properties.items():
        if not isinstance(text, str):
            raise _wrong(f"property {name!r}", text, "a text")
    now_ms = SystemClock().now_ms()
    fault = fault_of_wait(properties, now_ms, WaitArguments("delayLevel", "deliverAt"))
    if fault is not None:
        raise ValueError(fault)
    return properties


def _number(name: str, value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(name, value, "a whole number")
    return value


def _deliver_at(value: object) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise _wrong("deliverAt", value, "a text")
    return parsed_time(value)


def _wrong(name: str, value: object, wanted: str) -> ValueError:
    return ValueError(f"{name} is {_shown(value)}, accepted is {wanted}")


def _shown(value: object) -> str:
    """Returns a value as JSON of at most 60 characters."""
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

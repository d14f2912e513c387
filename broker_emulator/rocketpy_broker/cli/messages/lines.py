"""Messages of a file, one JSON object or body per line.

A file is read twice, so that a bad line is found before the first send. Input that cannot be read
twice is copied to a temporary file.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.messages.json_input import json_message
from rocketpy_broker.messages.outgoing_message import OutgoingMessage

STANDARD_INPUT = "-"
LINE_BYTES_MAX = 64 << 20
COPIED_BYTES_MAX, COPY_BYTES = 1 << 30, 1 << 20
FAULTS_SHOWN_MAX = 10
Fault = Callable[[OutgoingMessage], str | None]
Parse = Callable[[bytes], OutgoingMessage]


class MessageLineError(BrokerError):
    """Error for input that cannot be read, is too long, or has a line that is no message."""


@contextmanager
def open_lines(
    path: str, template: OutgoingMessage | None = None, *, copied_bytes_max: int = COPIED_BYTES_MAX
) -> Iterator[MessageLines]:
    """Opens a file or standard input; yields its lines. Raises MessageLineError.

    With a `template` each line is a body; the other fields are the template's.
    """
    parse = json_message if template is None else partial(_with_body, template)
    if not path:
        # As a path it would be the working directory.
        raise MessageLineError(
            "the name of the file is empty; name a file, or - for standard input"
        )
    with ExitStack() as closing:
        try:
            if path == STANDARD_INPUT:
                file: IO[bytes] = sys.stdin.buffer
            else:
                file = closing.enter_context(Path(path).open("rb"))
            if path == STANDARD_INPUT or not file.seekable():
                copy = closing.enter_context(tempfile.TemporaryFile())
                file = _copied(path, file, copy, copied_bytes_max)
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


def _copied(path: str, file: IO[bytes], copy: IO[bytes], bytes_max: int) -> IO[bytes]:
    """Copies a file; returns the copy. Raises MessageLineError above `bytes_max`."""
    name = "standard input" if path == STANDARD_INPUT else path
    while piece := file.read(COPY_BYTES):
        copy.write(piece)
        if copy.tell() > bytes_max:
            raise MessageLineError(
                f"nothing was sent: {name} is too long to be checked before the send, limit "
                f"{bytes_max} bytes for a pipe. Send it in parts, or name a file"
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
                    f"{self._path} changed after its check; line {number}: {error}"
                ) from error

    def _message(self, line: bytes) -> OutgoingMessage:
        """Returns the message of a line. Raises ValueError with the fault."""
        if len(line) == LINE_BYTES_MAX and not line.endswith(b"\n"):
            raise ValueError(f"is too long, limit {LINE_BYTES_MAX - 1} bytes")
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

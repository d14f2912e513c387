"""A bare blocking socket with our codec. One request at a time.

It keeps the requests that servers send meanwhile (`asked_of_us`): some come before the answer.
"""

from __future__ import annotations

import itertools
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rocketpy_proto.remoting import (
    EXCHANGES,
    ONE_WAY_FLAG,
    PROTOCOL_VERSION,
    REQUEST_BODIES,
    RESPONSE_BODIES,
    Body,
    FrameDecoder,
    Header,
    NoFields,
    RemotingCommand,
    RequestCode,
    ResponseCode,
    Serialization,
    decode_body,
    encode_body,
    encode_frame,
    signed,
)
from tests.support.time_limits import WAIT_SECONDS_MAX

# Longer than any server delays an answer.
ANSWER_SECONDS_MAX = WAIT_SECONDS_MAX
RECEIVED_BYTES_MAX = 1 << 20


@dataclass(frozen=True)
class Keys:
    """The keys that sign requests where a server checks access."""

    access_key: str
    secret_key: str


@dataclass(frozen=True)
class Answer:
    """A server's answer to a request with a code."""

    request_code: RequestCode
    command: RemotingCommand

    @property
    def code(self) -> int:
        """A ResponseCode, as a plain number."""
        return self.command.code

    @property
    def remark(self) -> str:
        """The answer's text, empty if it has none."""
        return self.command.remark or ""

    @property
    def header(self) -> Any:
        """The ext fields, as the codec's class for them."""
        return EXCHANGES[self.request_code].response.decode(self.command.ext_fields)

    @property
    def content(self) -> Any:
        """The JSON body, as the codec's class for it."""
        return decode_body(RESPONSE_BODIES[self.request_code], self.command.body)

    def ok(self) -> Answer:
        """Returns this answer; asserts that it is a success."""
        assert self.code == ResponseCode.SUCCESS, (self.request_code.name, self.code, self.remark)
        return self


class Connection:
    """A connection to one server, `host:port`; with `keys` each request is signed."""

    def __init__(
        self,
        address: str,
        *,
        keys: Keys | None = None,
        tls: ssl.SSLContext | None = None,
        serialization: Serialization = Serialization.JSON,
        version: int = PROTOCOL_VERSION,
    ) -> None:
        host, _, port = address.rpartition(":")
        plain = socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS_MAX)
        self._socket = plain if tls is None else tls.wrap_socket(plain, server_hostname=host)
        self._keys = keys
        self._serialization = serialization
        self._version = version
        self._decoder = FrameDecoder()
        self._opaques = itertools.count(1)
        self._begun = 0
        self.asked_of_us: list[RemotingCommand] = []

    def ask(
        self, code: RequestCode, header: Header | None = None, body: Body | bytes = b""
    ) -> Answer:
        """Sends a request and waits for its answer, whatever its code."""
        return Answer(code, self._answer_to(self._send(*self._encoded(code, header, body))))

    def ask_plainly(
        self, code: int, ext_fields: Mapping[str, str], body: bytes = b""
    ) -> RemotingCommand:
        """Sends a request for which the codec has no classes, and waits for its answer."""
        return self._answer_to(self._send(code, ext_fields, body))

    def tell(
        self, code: RequestCode, header: Header | None = None, body: Body | bytes = b""
    ) -> None:
        """Sends a one-way request."""
        self._send(*self._encoded(code, header, body), flag=ONE_WAY_FLAG)

    def expect(self, code: RequestCode) -> Answer:
        """Waits for the answer to the request that `begin` sent."""
        return Answer(code, self._answer_to(self._begun))

    def begin(
        self, code: RequestCode, header: Header | None = None, body: Body | bytes = b""
    ) -> None:
        """Sends a request; `expect` waits for its answer."""
        self._begun = self._send(*self._encoded(code, header, body))

    def next_asked_of_us(self) -> RemotingCommand:
        """Waits for the server's next request, or takes the oldest one received."""
        while not self.asked_of_us:
            self.asked_of_us += self._decoder.feed(self._received())
        return self.asked_of_us.pop(0)

    def wait_at_most(self, seconds: float) -> None:
        """Waits that long for any frame. Raises TimeoutError when none comes."""
        self._socket.settimeout(seconds)
        try:
            self.asked_of_us += self._decoder.feed(self._received())
        finally:
            self._socket.settimeout(ANSWER_SECONDS_MAX)

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _encoded(
        self, code: RequestCode, header: Header | None, body: Body | bytes
    ) -> tuple[RequestCode, Mapping[str, str], bytes]:
        if isinstance(body, Body):
            assert isinstance(body, REQUEST_BODIES[code])
            body = encode_body(body)
        return code, EXCHANGES[code].request.encode(header or NoFields()), body

    def _send(self, code: int, ext_fields: Mapping[str, str], body: bytes, *, flag: int = 0) -> int:
        command = RemotingCommand(
            code=code,
            opaque=next(self._opaques),
            flag=flag,
            version=self._version,
            ext_fields=ext_fields,
            body=body,
            serialization=self._serialization,
        )
        if self._keys is not None:
            command = signed(command, self._keys.access_key, self._keys.secret_key)
        self._socket.sendall(b"".join(encode_frame(command)))
        return command.opaque

    def _answer_to(self, opaque: int) -> RemotingCommand:
        while True:
            for command in self._decoder.feed(self._received()):
                if not command.is_response:
                    self.asked_of_us.append(command)
                elif command.opaque == opaque:
                    return command

    def _received(self) -> bytes:
        data = self._socket.recv(RECEIVED_BYTES_MAX)
        if not data:
            raise ConnectionResetError("the server closed the connection")
        return data


def ask(address: str, code: RequestCode, header: Header | None = None) -> Answer:
    """Sends one request over a new connection; returns its answer."""
    with Connection(address) as connection:
        return connection.ask(code, header)

"""Credentials that requests carry, one form for each protocol.

A request without an access key, or with broken syntax, has no credentials.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from rocketpy_proto.bearer_token import SCHEME, BearerToken
from rocketpy_proto.remoting import RemotingCommand, UnencodableRemotingError
from rocketpy_proto.remoting.signature import ACCESS_KEY, SIGNATURE, is_signed_by

ACCESS_KEY_CHARACTERS_MAX = 64
DATE_TIME = "x-mq-date-time"
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
_BASIC = "basic "
# The longest body that is hashed for both signed forms; queries have none.
TWICE_BYTES_MAX = 65_536


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user's name, and a comparison of the signature with a secret key in constant time.

    `expiry_ms` is the time in ms since 1970 until which the signature is valid; None without end.
    `text` is the token that a client sends with several requests; empty for a signature.
    """

    access_key: str
    is_signed_by: Callable[[str], bool] = field(repr=False)
    expiry_ms: int | None = None
    text: str = field(default="", repr=False)


def remoting_credentials(command: RemotingCommand) -> Credentials | None:
    """Returns the credentials of a remoting request, the same for RocketMQ's ACL 1.0 and 2.0."""
    access_key = command.ext_fields.get(ACCESS_KEY, "")
    if not access_key or SIGNATURE not in command.ext_fields:
        return None

    def is_signed(secret_key: str) -> bool:
        try:
            return any(is_signed_by(each, secret_key) for each in _signed_forms(command))
        except UnencodableRemotingError:
            return False

    return _credentials(access_key, is_signed)


def _signed_forms(command: RemotingCommand) -> Iterator[RemotingCommand]:
    """Yields the forms of a request that clients sign: some versions leave out one field.

    Source: docs/design/remoting.md section 5.1.
    """
    yield command
    if UNIQUE_KEY_QUERY in command.ext_fields and len(command.body) <= TWICE_BYTES_MAX:
        fields = {
            name: text for name, text in command.ext_fields.items() if name != UNIQUE_KEY_QUERY
        }
        yield replace(command, ext_fields=fields)


def bearer_credentials(authorization: str) -> Credentials | None:
    """Returns the credentials of rocketpy.v1's header `authorization`."""
    scheme, _, text = authorization.partition(" ")
    token = BearerToken.parse(text) if scheme.lower() == SCHEME.lower() else None
    if token is None:
        return None
    return _credentials(token.access_key, token.is_signed_by, token.expiry_ms, text)


def mqv2_credentials(metadata: Mapping[str, str]) -> Credentials | None:
    """Returns the credentials of a request of apache.rocketmq.v2: MQv2-HMAC-SHA1.

        MQv2-HMAC-SHA1 Credential=AK/…, SignedHeaders=x-mq-date-time, Signature=hex

    The signature covers the header `x-mq-date-time` only, as RocketMQ's proxy checks it. Clients
    send their local time in several forms, so its age is not checked.
    Source: DefaultAuthenticationContextBuilder.
    """
    date_time = metadata.get(DATE_TIME, "")
    _, _, rest = metadata.get("authorization", "").partition(" ")
    parts = dict(part.strip().partition("=")[::2] for part in rest.split(","))
    access_key = parts.get("Credential", "").partition("/")[0]
    try:
        signature = bytes.fromhex(parts.get("Signature", ""))
    except ValueError:
        return None
    if not (date_time and access_key and signature):
        return None

    def is_signed(secret_key: str) -> bool:
        text = date_time.encode(errors="surrogatepass")
        expected = hmac.digest(secret_key.encode(), text, "sha1")
        return hmac.compare_digest(expected, signature)

    return _credentials(access_key, is_signed)


def basic_credentials(authorization: str) -> Credentials | None:
    """Returns the credentials of HTTP's Basic scheme: access key and secret key."""
    if authorization[: len(_BASIC)].lower() != _BASIC:
        return None
    try:
        text = base64.b64decode(authorization[len(_BASIC) :], validate=True).decode()
    except ValueError:
        return None
    access_key, separator, password = text.partition(":")
    if not separator:
        return None
    return _credentials(
        access_key, lambda secret: hmac.compare_digest(secret.encode(), password.encode())
    )


def _credentials(
    access_key: str,
    is_signed: Callable[[str], bool],
    expiry_ms: int | None = None,
    text: str = "",
) -> Credentials | None:
    """Returns credentials; None without an access key.

    A key above the limit belongs to no user. It is cut, so that counts of failures stay small.
    """
    if not access_key:
        return None
    key = access_key[: ACCESS_KEY_CHARACTERS_MAX + 1]
    return Credentials(key, is_signed, expiry_ms, text)

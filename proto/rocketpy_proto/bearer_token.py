"""Bearer tokens of rocketpy.v1, signed with the secret key.

    base64url(access key).expiry time in ms.base64url(HMAC-SHA256(secret key, text))

The text is `rocketpy.v1`, the access key and the expiry time, each with a line feed at its end. A
token does not show the secret key. It serves any request until it expires, so a network that
an attacker can read needs TLS.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field

SCHEME = "Bearer"
AUTHORIZATION = "authorization"
# The longest life of a token; a broker accepts 30 s more. Clients use less, since clocks differ.
LIFE_MS_MAX = 300_000
LIFE_MS = 240_000
# A client makes the next token when this one has less time left.
REST_MS_MIN = 60_000
TEXT_MAX = 512


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token's parts; whether they are true is not known before `is_signed_by`."""

    access_key: str
    expiry_ms: int
    signature: bytes = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> BearerToken | None:
        """Returns the parts of a token; None for another text."""
        parts = text.split(".")
        if len(text) > TEXT_MAX or len(parts) != 3:
            return None
        try:
            key, signature = _decoded(parts[0]).decode(), _decoded(parts[2])
        except ValueError:
            return None
        digits = parts[1]
        if not (digits.isascii() and digits.isdecimal()):
            return None
        return cls(key, int(digits), signature)

    def is_signed_by(self, secret_key: str) -> bool:
        """True if the token was made with this secret key; takes the same time otherwise."""
        expected = _signature(self.access_key, self.expiry_ms, secret_key)
        return hmac.compare_digest(expected, self.signature)


def bearer_token(access_key: str, secret_key: str, expiry_ms: int) -> str:
    """Returns a token that expires at this time in ms since 1970."""
    key = _encoded(access_key.encode())
    return f"{key}.{expiry_ms}.{_encoded(_signature(access_key, expiry_ms, secret_key))}"


@dataclass(slots=True)
class TokenSource:
    """A client's tokens: the present one is used until its end is near."""

    access_key: str
    secret_key: str = field(repr=False)
    now_ms: Callable[[], int]
    _text: str = field(default="", repr=False)
    _expiry_ms: int = 0

    def token(self) -> str:
        """Returns a token that is valid for a minute or more."""
        now_ms = self.now_ms()
        # A clock that was set back makes the token too long-lived.
        if not REST_MS_MIN <= self._expiry_ms - now_ms <= LIFE_MS:
            self._expiry_ms = now_ms + LIFE_MS
            self._text = bearer_token(self.access_key, self.secret_key, self._expiry_ms)
        return self._text


def _signature(access_key: str, expiry_ms: int, secret_key: str) -> bytes:
    text = f"rocketpy.v1\n{access_key}\n{expiry_ms}\n"
    return hmac.digest(secret_key.encode(), text.encode(), "sha256")


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    """Returns the bytes of unpadded base64url. Raises ValueError."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error

"""Tokens that prove that a form is from the console.

A browser has a random value in a cookie, and each form has that value's token. A page of another
site cannot read the cookie, so it cannot make the token. The cookie has no rights of its own. The
key of the tokens lives as long as the process: a form from before a restart is refused.
"""

from __future__ import annotations

import hmac
import re
import secrets

from rocketpy_broker.errors import AccessDeniedError

COOKIE, FIELD = "rocketpy_console", "token"
_VALUE = re.compile(r"[0-9a-f]{32}")


class WrongTokenError(AccessDeniedError):
    """A form without the token of its browser; nothing was done."""

    def __init__(self) -> None:
        super().__init__(
            "the form is from before the broker's last start, or from another site; open the page "
            "again and repeat the action"
        )


class Tokens:
    """The tokens of one broker."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def value(self, cookie: str) -> str:
        """Returns a browser's value: the one of its cookie, or a new one."""
        return cookie if _VALUE.fullmatch(cookie) else secrets.token_hex(16)

    def token(self, value: str) -> str:
        """Returns the token of a browser's value."""
        return hmac.digest(self._key, value.encode(), "sha256").hex()

    def check(self, cookie: str, token: str) -> None:
        """Raises WrongTokenError unless the token is that of the cookie."""
        is_known = _VALUE.fullmatch(cookie) is not None
        if not (is_known and hmac.compare_digest(self.token(cookie).encode(), token.encode())):
            raise WrongTokenError

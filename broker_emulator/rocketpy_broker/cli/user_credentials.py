"""The user in whose name a command calls a broker.

It comes from options before the command, or from the environment. No output shows the secret key.
State: the user of the running command.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class UserCredentials:
    """An access key and its secret key; None for a broker without users."""

    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)


_NO_USER = UserCredentials()
_current_user: ContextVar[UserCredentials] = ContextVar("user", default=_NO_USER)


def sign_in(access_key: str, secret_key: str) -> None:
    """Sets the user of all further calls; empty texts set none."""
    _current_user.set(UserCredentials(access_key or None, secret_key or None))


def current_user() -> UserCredentials:
    """Returns the user of the running command."""
    return _current_user.get()

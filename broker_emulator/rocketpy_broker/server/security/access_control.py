"""Access control of all protocols: users and required permissions.

Without users every request is served, as RocketMQ's brokers do by default. A change or removal of a
user counts from the next request on, also in a running stream.
State: the users, failed attempts, connections of users with a right signature, and verified bearer
tokens. All are bounded.
"""

from __future__ import annotations

import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from rocketpy_broker.errors import StoreClosedError
from rocketpy_broker.runtime.clock import Clock, sleep
from rocketpy_broker.server.security.attempts import Attempts, host_of
from rocketpy_broker.server.security.credentials import Credentials
from rocketpy_broker.server.security.errors import MissingSignatureError, UnauthenticatedError
from rocketpy_broker.server.security.permissions import (
    BROKER,
    Action,
    Principal,
    Resource,
    authorize,
    group,
    topic,
)
from rocketpy_broker.server.security.users import User, UserTable
from rocketpy_broker.services import caller
from rocketpy_broker.services.caller import Caller
from rocketpy_proto.bearer_token import LIFE_MS_MAX

TOKENS_MAX = 10_000
# A client's clock may be ahead by this time.
AHEAD_MS_MAX = 30_000
RESOURCES_SHOWN = 3

audit = logging.getLogger("rocketpy_broker.audit")
# `--log-level` does not hide audit lines.
audit.setLevel(logging.INFO)


@dataclass(frozen=True, slots=True)
class Requirement:
    """An action that a request needs on each of its resources; one of combined ones is enough."""

    action: Action
    resources: Callable[[Any], Iterable[Resource]]


Requirements = tuple[Requirement, ...]


def on_broker(action: Action) -> Requirements:
    """Returns the requirement of an action on the broker as a whole."""
    return (Requirement(action, lambda _: (BROKER,)),)


class AccessControl:
    """The users, and the checks of their requests."""

    def __init__(
        self,
        users: UserTable,
        clock: Clock,
        slave_refusal: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Calls `slave_refusal` for the reason why a slave refuses writes; None at a master."""
        self.users = users
        self._slave_refusal = slave_refusal
        self.attempts = Attempts(clock)
        self._clock = clock
        self._verified: OrderedDict[str, User] = OrderedDict()
        # Users with a connection on which their last signature was right. Failures on another
        # connection do not delay them. A wrong signature ends this.
        self._proven: OrderedDict[tuple[str, str], None] = OrderedDict()
        # An unknown user's signature is compared, too, so it takes the same time.
        self._unknown = secrets.token_urlsafe()

    @property
    def is_on(self) -> bool:
        """True if requests need a user."""
        return self.users.is_on

    # --- Users ---

    def wait_ms(self, credentials: Credentials | None, peer: str) -> float:
        """Returns the time that these credentials must wait before `principal` may be called.

        Raises TooManyAttemptsError.
        """
        if credentials is None or self._is_verified(credentials):
            return 0.0
        if (credentials.access_key, peer) in self._proven:
            return 0.0
        return self.attempts.wait_ms(credentials.access_key, host_of(peer))

    def principal(self, credentials: Credentials | None, peer: str) -> Principal:
        """Returns the user of a signature. Raises UnauthenticatedError."""
        if credentials is None:
            raise MissingSignatureError
        user = self.users.get(credentials.access_key)
        if not self._is_verified(credentials):
            secret_key = self._unknown if user is None else user.secret_key
            if not credentials.is_signed_by(secret_key) or user is None:
                self._proven.pop((credentials.access_key, peer), None)
                self.attempts.failed(credentials.access_key, host_of(peer))
                raise UnauthenticatedError
            self.attempts.succeeded(credentials.access_key, host_of(peer))
            _keep(self._proven, (credentials.access_key, peer), None)
        assert user is not None
        self._check_time(credentials)
        if credentials.text:
            _keep(self._verified, credentials.text, user)
        return user.principal

    async def authenticate(self, credentials: Credentials | None, peer: str) -> Principal:
        """Returns the user of a signature, after the wait for earlier failures.

        Raises UnauthenticatedError.
        """
        await self.wait(self.wait_ms(credentials, peer), peer)
        return self.principal(credentials, peer)

    async def wait(self, wait_ms: float, peer: str) -> None:
        """Waits before an attempt."""
        if wait_ms > 0:
            with self.attempts.waits(host_of(peer)):
                await sleep(self._clock, wait_ms)

    def present(self, principal: Principal) -> Principal:
        """Returns the user as it is now. Raises UnauthenticatedError if it is removed."""
        user = self.users.get(principal.access_key)
        if user is None:
            raise UnauthenticatedError
        return user.principal

    def _is_verified(self, credentials: Credentials) -> bool:
        """True if the token was verified with the user's present secret key."""
        user = self._verified.get(credentials.text) if credentials.text else None
        return user is not None and self.users.get(credentials.access_key) is user

    def _check_time(self, credentials: Credentials) -> None:
        """Raises UnauthenticatedError for a token that has expired, or is valid for too long."""
        if credentials.expiry_ms is None:
            return
        left_ms = credentials.expiry_ms - self._clock.now_ms()
        if not 0 < left_ms <= LIFE_MS_MAX + AHEAD_MS_MAX:
            self._verified.pop(credentials.text, None)
            raise UnauthenticatedError(
                f"the token expires in {left_ms} ms, accepted is 1 to "
                f"{LIFE_MS_MAX + AHEAD_MS_MAX} ms; check the clocks of client and broker, or make "
                "a new token"
            )

    # --- Permissions ---

    @property
    def slave_refusal(self) -> str | None:
        """The reason why a slave refuses writes; None at a master."""
        return self._slave_refusal()

    def check_write(self) -> None:
        """Raises StoreClosedError at a slave: no call may write there."""
        refusal = self.slave_refusal
        if refusal is not None:
            raise StoreClosedError(refusal)

    def check_off(self, _request: object) -> None:
        """Checks a request of a call that began while the broker had no users.

        Raises MissingSignatureError if the broker has users by now.
        """
        if self.is_on:
            raise MissingSignatureError

    async def admitted(
        self,
        credentials: Credentials | None,
        requirements: Requirements,
        method: str,
        peer: str,
        call_of: Callable[[Any], Any] = lambda request: request,
    ) -> Callable[[Any], None]:
        """Authenticates a gRPC call; returns the function that checks each of its requests.

        `call_of` returns the value of a request that requirements read. Raises
        UnauthenticatedError.
        """
        principal = await self.authenticate(credentials, peer)
        caller.current.set(UserCaller(self, principal))

        def check(request: Any) -> None:
            present = self.present(principal)
            self.check(present, requirements, call_of(request), method.strip("/"), peer)

        return check

    def check(
        self,
        principal: Principal,
        requirements: Iterable[Requirement],
        request: Any,
        method: str,
        peer: str,
    ) -> None:
        """Checks the permissions of a request; logs a permitted one that needs an admin.

        Raises NoPermissionError.
        """
        audited: list[Resource] = []
        for requirement in requirements:
            for resource in requirement.resources(request):
                authorize(principal, requirement.action, resource)
                if requirement.action is Action.ADMIN and len(audited) < RESOURCES_SHOWN:
                    audited.append(resource)
        if audited:
            shown = ", ".join(map(str, audited))
            audit.info(
                "user %s requested %s of %s from %s", principal.access_key, method, shown, peer
            )


@dataclass(frozen=True, slots=True)
class UserCaller(Caller):
    """A request's user, for look-ups by a position in the log."""

    control: AccessControl
    principal: Principal

    def may_read(self, name: str) -> bool:
        """True if the user may read the messages of a topic."""
        return bool(self._granted(name) & Action.SUB)

    def may_send(self, name: str) -> bool:
        """True if the user may send messages to the topic."""
        return bool(self._granted(name) & Action.PUB)

    def may_see(self, name: str) -> bool:
        """True if the user may read as the group, or may see all counts."""
        is_monitor = self._on(BROKER) & Action.MONITOR
        return bool(is_monitor or self._on(group(name)) & Action.SUB)

    def _granted(self, name: str) -> Action:
        return self._on(topic(name))

    def _on(self, resource: Resource) -> Action:
        user = self.control.users.get(self.principal.access_key)
        return Action.DENY if user is None else user.principal.granted(resource)


def _keep(table: OrderedDict[Any, Any], key: object, value: object) -> None:
    """Enters a value; beyond TOKENS_MAX the oldest entry is dropped."""
    table[key] = value
    if len(table) > TOKENS_MAX:
        table.popitem(last=False)

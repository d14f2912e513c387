"""Access by HTTP: `Authorization: Basic` with a user's access key and secret key."""

from __future__ import annotations

from rocketpy_broker.server.security.access_control import AccessControl
from rocketpy_broker.server.security.credentials import basic_credentials
from rocketpy_broker.server.security.permissions import BROKER, Action, authorize


class HttpAccess:
    """The checks of HTTP requests."""

    def __init__(self, control: AccessControl) -> None:
        self._control = control

    async def check_monitor(self, authorization: str, peer: str) -> None:
        """Returns for a monitor or an admin, or if the broker has no users.

        Raises UnauthenticatedError, NoPermissionError.
        """
        if self._control.is_on:
            credentials = basic_credentials(authorization)
            principal = await self._control.authenticate(credentials, f"http:{peer}:")
            authorize(principal, Action.MONITOR, BROKER)

"""Refusals of requests by their signature or by their user's permissions."""

from __future__ import annotations

from rocketpy_broker.errors import AccessDeniedError, BrokerError
from rocketpy_proto.counts import counted
from rocketpy_proto.model.codes import ResponseCode


class UnauthenticatedError(AccessDeniedError):
    """A request without a valid signature.

    The same text answers an unknown user, a disabled user and a wrong secret key.
    """

    code = ResponseCode.UNAUTHENTICATED

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(
            reason
            or "the access key or the signature is not accepted; check access key and secret key"
        )


class MissingSignatureError(UnauthenticatedError):
    """A request that names no user."""

    def __init__(self) -> None:
        super().__init__(
            "the broker has users, and the request names none; set access key and secret key"
        )


class TooManyAttemptsError(UnauthenticatedError):
    """An attempt that was not examined: too many before it have failed."""

    def __init__(self, wait_ms: float) -> None:
        wait = counted(max(round(wait_ms / 1000), 1), "second")
        super().__init__(f"too many attempts have failed; try again in {wait}")
        self.wait_ms = wait_ms


class NoPermissionError(AccessDeniedError):
    """A request for which its user lacks the permission."""

    def __init__(self, access_key: str, needed: str, resource: str) -> None:
        """Takes in `needed` a permission or a role, such as `permission PUB`."""
        super().__init__(
            f"user {access_key!r} lacks the {needed} for {resource}; "
            "an admin grants it with `rocketpy user update`"
        )


class UserError(BrokerError):
    """A change of users that the broker refuses; nothing was changed."""

    code = ResponseCode.INVALID_PARAMETER


class UserNotExistError(UserError):
    """A change of a user that does not exist."""

    code = ResponseCode.USER_NOT_EXIST

    def __init__(self, access_key: str) -> None:
        super().__init__(f"user {access_key!r:.100} does not exist; `rocketpy user list` shows all")


class NoUsersError(BrokerError):
    """A request about users or ACLs at a broker without users."""

    def __init__(self) -> None:
        super().__init__(
            "the broker has no users; add the first one, an admin, with "
            "`rocketpy user add NAME --role admin`"
        )

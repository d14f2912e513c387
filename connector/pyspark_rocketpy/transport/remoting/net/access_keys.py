"""Access keys that sign every request. Their `repr` has no secrets.

Requests are signed alike for RocketMQ's access control 1.0 and 2.0.

Source: docs/design/remoting.md section 5.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rocketpy_proto.remoting import RemotingCommand, signed


@dataclass(frozen=True, slots=True)
class AccessKeys:
    """Options accessKey, secretKey and securityToken."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def sign(self, request: RemotingCommand) -> RemotingCommand:
        """Returns the signed request; the caller must not add fields to it.

        Raises UnencodableRemotingError.
        """
        return signed(request, self.access_key, self.secret_key, self.security_token)

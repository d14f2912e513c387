"""Signatures of requests to brokers with access control.

ACL 1.0 and 2.0 use the same signature. It covers neither time nor number, so a recorded request can
be replayed. Source: docs/design/remoting.md section 5.1.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping

from msgspec.structs import replace

from rocketpy_proto.remoting.command import RemotingCommand
from rocketpy_proto.remoting.errors import UnencodableRemotingError

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105 # The name of a field.
SIGNATURE = "Signature"


def signed(
    command: RemotingCommand, access_key: str, secret_key: str, security_token: str | None = None
) -> RemotingCommand:
    """Returns the command with its signature; no field may change afterwards.

    Raises UnencodableRemotingError.
    """
    ext_fields = {**command.ext_fields, ACCESS_KEY: access_key}
    if security_token is not None:
        ext_fields[SECURITY_TOKEN] = security_token
    ext_fields[SIGNATURE] = signature(ext_fields, command.body, secret_key)
    return replace(command, ext_fields=ext_fields)


def is_signed_by(command: RemotingCommand, secret_key: str) -> bool:
    """True if the command's signature is this key's. Raises UnencodableRemotingError."""
    expected = signature(command.ext_fields, command.body, secret_key)
    given = command.ext_fields.get(SIGNATURE, "")
    return hmac.compare_digest(expected.encode(), given.encode(errors="surrogatepass"))


def signature(ext_fields: Mapping[str, str], body: bytes | memoryview, secret_key: str) -> str:
    """Returns the Base64 of the HMAC-SHA1 of all values, in order of their names, and the body.

    Raises UnencodableRemotingError.
    """
    try:
        # Java orders by UTF-16 units, as the bytes of UTF-16-BE do.
        names = sorted(ext_fields.keys() - {SIGNATURE}, key=lambda name: name.encode("utf-16-be"))
        digest = hmac.new(secret_key.encode(), digestmod=hashlib.sha1)
        for name in names:
            digest.update(ext_fields[name].encode())
    except UnicodeEncodeError as error:
        raise UnencodableRemotingError(SIGNATURE, f"not Unicode: {error}") from error
    digest.update(body)
    return base64.b64encode(digest.digest()).decode()

"""Refusals of requests that pages of other sites send.

A page may make its reader's browser send a request, with the reader's password. The browser shows
the page no answer, since no header of ours allows that. By DNS rebinding, a page could give its own
name the broker's address. The browser would then take the broker for the page's own site.
`HostRule` refuses such names; a page cannot choose an address, or a name without a dot.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from rocketpy_broker.errors import AccessDeniedError, ParameterIllegalError
from rocketpy_broker.server.bind_address import is_loopback

JSON_TYPE, IDENTITY = "application/json", "identity"
_OWN_SITE = frozenset({"same-origin", "none"})


class ForeignSiteError(AccessDeniedError):
    """A request of a page of another site; nothing was done."""

    def __init__(self, header: str, value: str) -> None:
        super().__init__(
            f"the header {header} is {value!r:.200}, which is not this broker's own site; open the "
            "page at the broker's address"
        )


class ContentTypeError(ParameterIllegalError):
    """A body whose header does not name uncompressed JSON; nothing was done."""

    def __init__(self, value: str, header: str = "Content-Type", accepted: str = JSON_TYPE) -> None:
        super().__init__(f"header {header}", value, accepted)


@dataclass(frozen=True, slots=True)
class HostRule:
    """The names by which clients may call the broker.

    With `is_local` the broker listens on loopback only. `names` are the broker's own. A broker with
    users needs no rule: a browser does not send a password to another name.
    """

    is_local: bool
    names: frozenset[str]
    has_users: Callable[[], bool]

    def allows(self, host: str) -> bool:
        """True if no page of another site can send this value of the header `Host`."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if self.is_local or is_loopback(name):
            return is_loopback(name)
        return self.has_users() or name in self.names or "." not in name or _is_address(name)


def check_site(headers: Mapping[str, str], rule: HostRule) -> None:
    """Raises ForeignSiteError for a request of another site's page."""
    host = headers.get("Host", "")
    if not rule.allows(host):
        raise ForeignSiteError("Host", host)
    site = headers.get("Sec-Fetch-Site", "none")
    if site not in _OWN_SITE:
        raise ForeignSiteError("Sec-Fetch-Site", site)
    origin = headers.get("Origin")
    # The scheme may differ: a proxy before the broker may end TLS.
    if origin is not None and origin.partition("://")[2].lower() != host.lower():
        raise ForeignSiteError("Origin", origin)


def check_content_type(headers: Mapping[str, str]) -> None:
    """Raises ContentTypeError unless an action's body is JSON, which no form of a page can send.

    A compressed body is not inflated, so it is refused, too.
    """
    value = headers.get("Content-Type", "")
    if value.partition(";")[0].strip().lower() != JSON_TYPE:
        raise ContentTypeError(value)
    encoding = headers.get("Content-Encoding", IDENTITY)
    if encoding.strip().lower() != IDENTITY:
        raise ContentTypeError(encoding, "Content-Encoding", IDENTITY)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

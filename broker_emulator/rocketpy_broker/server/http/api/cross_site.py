"""Refusals of requests that a page of another site has its reader's browser make.

A browser sends the reader's password with such a request. It shows the page no answer, since no
header of ours allows that. By DNS rebinding, a page could give its own name the address of this
machine; so a broker on loopback answers no other host name.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from rocketpy_broker.errors import AccessDeniedError, ParameterIllegalError
from rocketpy_broker.server.bind_address import is_loopback

JSON_TYPE = "application/json"
_OWN_SITE = frozenset({"same-origin", "none"})


class ForeignSiteError(AccessDeniedError):
    """A request of a page of another site; nothing was done."""

    def __init__(self, header: str, value: str) -> None:
        super().__init__(
            f"the header {header} is {value!r:.200}, which is not this broker's own site; open the "
            "page at the broker's address"
        )


class ContentTypeError(ParameterIllegalError):
    """An action without the content type of JSON; nothing was done."""

    def __init__(self, value: str) -> None:
        super().__init__("header Content-Type", value, JSON_TYPE)


def check_site(headers: Mapping[str, str], *, is_local: bool) -> None:
    """Raises ForeignSiteError for a request of another site's page."""
    host = headers.get("Host", "")
    if is_local and not is_loopback_name(host):
        raise ForeignSiteError("Host", host)
    site = headers.get("Sec-Fetch-Site", "none")
    if site not in _OWN_SITE:
        raise ForeignSiteError("Sec-Fetch-Site", site)
    origin = headers.get("Origin")
    # The scheme may differ: a proxy before the broker may end TLS.
    if origin is not None and origin.partition("://")[2].lower() != host.lower():
        raise ForeignSiteError("Origin", origin)


def check_content_type(headers: Mapping[str, str]) -> None:
    """Raises ContentTypeError unless an action has the type that no form of a page can have."""
    value = headers.get("Content-Type", "")
    if value.partition(";")[0].strip().lower() != JSON_TYPE:
        raise ContentTypeError(value)


def is_loopback_name(host: str) -> bool:
    """True if a host, with a port or without, is this machine's own name for itself."""
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False

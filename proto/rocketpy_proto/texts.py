"""Checks of texts, and texts of addresses."""

from __future__ import annotations

PORT_MAX = 65_535


def is_unicode(text: str) -> bool:
    """True if a text has no surrogates, which no encoding has; JSON may have lone ones."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def is_port(text: str) -> bool:
    """True if a text is the decimal number of a port, 1 to PORT_MAX."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(PORT_MAX))
    return is_number and 0 < int(text) <= PORT_MAX


def address_text(host: str, port: int) -> str:
    """Returns `host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host and host[0] != "[" else f"{host}:{port}"

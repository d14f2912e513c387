"""The console's files for browsers: style, program, icon, and htmx.

They are read once. Their addresses have a hash of their content, so browsers keep them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

PREFIX = "/static"
_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
NAMES = ("console.css", "console.js", "htmx.min.js", "icon.svg")


@dataclass(frozen=True, slots=True)
class Asset:
    """A file: its content, its type, and its address."""

    content: bytes
    type: str
    address: str


@cache
def assets() -> dict[str, Asset]:
    """Returns all files by name."""
    return {name: _read(name) for name in NAMES}


def _read(name: str) -> Asset:
    content = files(__package__).joinpath("static").joinpath(name).read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:16]
    kind = _TYPES[name.rpartition(".")[2]]
    return Asset(content, f"{kind}; charset=utf-8", f"{PREFIX}/{name}?v={digest}")

"""Templates and the filters that write figures in them.

Jinja escapes all text. Jinja and the templates are loaded on a thread at their first use: that
takes up to 100 ms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup, escape

from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.server.http.console.assets import assets
from rocketpy_broker.server.http.console.request import address

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SPANS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_PERMISSIONS = {4: "read", 2: "write"}
# An en dash.
_NONE = "\u2013"


async def rendered(template: str, values: Mapping[str, object]) -> bytes:
    """Returns a page in UTF-8."""
    loaded = await asyncio.to_thread(_environment_template, template)
    await take_slot("http")
    return loaded.render(values).encode()


def _environment_template(name: str) -> jinja2.Template:
    return _environment().get_template(name)


@cache
def _environment() -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    filters: dict[str, Any] = {
        "bytes": bytes_text,
        "count": count_text,
        "counted": counted,
        "duration": duration_text,
        "part": part,
        "permission": permission_text,
        "time": time_shown,
    }
    found.filters.update(filters)
    found.globals["address"] = address
    found.globals["group_link"] = _group_link
    found.globals["topic_link"] = _topic_link
    found.globals["assets"] = {name: each.address for name, each in assets().items()}
    return found


@jinja2.pass_context
def _topic_link(context: jinja2.runtime.Context, name: str) -> Markup:
    """Returns a topic's name, as a link if the user may open its page."""
    return _link(f"/topics/{part(name)}", name, is_open=context["may_open_topic"](name))


@jinja2.pass_context
def _group_link(context: jinja2.runtime.Context, name: str) -> Markup:
    """Returns a group's name, as a link if the user may open its page."""
    return _link(f"/groups/{part(name)}", name, is_open=context["may_open_group"](name))


def _link(path: str, name: str, *, is_open: bool) -> Markup:
    return Markup('<a href="{}">{}</a>').format(path, name) if is_open else escape(name)


def bytes_text(size_bytes: float) -> str:
    """Returns a size in its largest unit, such as 1.5 MiB."""
    size = float(size_bytes)
    for unit in _UNITS[:-1]:
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} {_UNITS[-1]}"


def count_text(number: float | None) -> str:
    """Returns a number with commas between its thousands; a dash for none."""
    if number is None:
        return _NONE
    return f"{round(number, 1):,}"


def counted(number: float, one: str, many: str = "") -> str:
    """Returns a number, written as by `count_text`, and its noun: `1 message`, `1,200 messages`."""
    return f"{count_text(number)} {one if number == 1 else many or one + 's'}"


def duration_text(duration_ms: float) -> str:
    """Returns a duration in its two largest units, such as 3 h 5 min."""
    rest = max(int(duration_ms), 0) // 1000
    parts: list[str] = []
    for unit, seconds in _SPANS:
        count, rest = divmod(rest, seconds)
        if count or (parts and unit != "s"):
            parts.append(f"{count} {unit}")
    shown = [each for number, each in enumerate(parts[:2]) if not number or each[0] != "0"]
    return " ".join(shown) or "0 s"


def part(name: str) -> str:
    """Returns a name as a part of a path."""
    return quote(name, safe="")


def permission_text(perm: int) -> str:
    """Returns the permission of a topic in words."""
    words = [word for bit, word in _PERMISSIONS.items() if perm & bit]
    return ", ".join(words) or "none"


def time_shown(text: str | None) -> str:
    """Returns a time of the JSON API as people read it, in UTC; a dash for none."""
    if text is None:
        return _NONE
    try:
        time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return text
    return time.strftime("%Y-%m-%d %H:%M:%S")

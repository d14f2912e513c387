"""What an option is: its form, how its text is read, and its row in a table. Holds no state."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from pyspark_rocketpy.errors import OptionError

_DURATION = re.compile(r"(\d{1,9}) ?(ms|s|m|h)")
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
# What Spark itself puts among a writer's or reader's options.
SPARK_OPTIONS = frozenset(
    {"path", "checkpointlocation", "queryname", "outputmode", "triggerinterval"}
)


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """One option: its name, default as text, what it accepts, and what it does."""

    name: str
    default: str | None
    accepted: str
    meaning: str
    parse: Callable[[str], object]


def text(value: str) -> str:
    """Any text but blanks. Raises ValueError."""
    if not value.strip():
        raise ValueError
    return value.strip()


def names(value: str) -> tuple[str, ...]:
    """Different names with commas between. Raises ValueError."""
    parts = tuple(part.strip() for part in value.split(","))
    if not all(parts) or len(set(parts)) != len(parts):
        raise ValueError
    return parts


def endpoints(value: str) -> tuple[str, ...]:
    """Hosts with ports. Raises ValueError."""
    found = names(value.replace(";", ","))
    for endpoint in found:
        host, colon, port = endpoint.rpartition(":")
        if not (host and colon and port.isdecimal() and 0 < int(port) < 65536):
            raise ValueError
    return found


def tags(value: str) -> tuple[str, ...] | None:
    """`TagA || TagB` as RocketMQ reads it, each tag once; None for `*`. Raises ValueError."""
    parts = tuple(dict.fromkeys(part.strip() for part in value.split("||")))
    if parts == ("*",):
        return None
    if not all(parts) or "*" in parts:
        raise ValueError
    return parts


def keys(value: str) -> tuple[str, ...]:
    """Different keys, none with a blank inside, for blanks part a message's keys."""
    parts = names(value)
    if any(" " in part for part in parts):
        raise ValueError
    return parts


def _switch(value: str) -> bool:
    return {"true": True, "false": False}[value.strip().lower()]


def _number(low: int, high: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        number = int(value)
        if not low <= number <= high:
            raise ValueError
        return number

    return parse


def duration_ms(value: str) -> int:
    """`500ms`, `20s`, `15m`, `1h`: a number and its unit, as ms."""
    match = _DURATION.fullmatch(value.strip().lower())
    if match is None:
        raise ValueError
    return int(match[1]) * _UNITS_MS[match[2]]


def pattern(value: str) -> str:
    """A regular expression. Raises ValueError."""
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError from error
    return text(value)


def _one_of(kind: type[Enum]) -> Callable[[str], Enum]:
    """The member with this value, whatever the case of its letters."""

    def parse(value: str) -> Enum:
        return {str(member.value).lower(): member for member in kind}[value.strip().lower()]

    return parse


def choice_spec(name: str, kind: type[Enum], default: str | None, meaning: str) -> OptionSpec:
    """An option whose values are those of an enumeration."""
    accepted = ", ".join(str(member.value) for member in kind)
    return OptionSpec(name, default, accepted, meaning, _one_of(kind))


def number_spec(name: str, default: int | None, low: int, high: int, meaning: str) -> OptionSpec:
    """An option with a whole number between two, both included."""
    shown = None if default is None else str(default)
    return OptionSpec(name, shown, f"{low} to {high}", meaning, _number(low, high))


def switch_spec(name: str, default: str, meaning: str) -> OptionSpec:
    """An option that is true or false."""
    return OptionSpec(name, default, "true or false", meaning, _switch)


def parse(options: Mapping[str, str], specs: tuple[OptionSpec, ...]) -> dict[str, object]:
    """The value of each option, by its name in Python. Raises OptionError."""
    given = {name.lower(): value for name, value in options.items()}
    _refuse_unknown(given, specs)
    values: dict[str, object] = {}
    for spec in specs:
        value = given.get(spec.name.lower(), spec.default)
        values[_field(spec.name)] = None if value is None else _value(spec, value)
    if values["endpoints"] is None:
        raise OptionError("option endpoints is missing; set it to host:port of a broker")
    return values


def _refuse_unknown(given: Mapping[str, str], specs: tuple[OptionSpec, ...]) -> None:
    known = {spec.name.lower(): spec.name for spec in specs}
    for name in given:
        if name not in known and name not in SPARK_OPTIONS:
            near = difflib.get_close_matches(name, known, 1)
            hint = (
                f"did you mean {known[near[0]]}?" if near else f"known: {', '.join(known.values())}"
            )
            raise OptionError(f"unknown option {name}; {hint}")


def _value(spec: OptionSpec, value: str) -> object:
    try:
        return spec.parse(value)
    except (ValueError, KeyError) as error:
        raise OptionError(f"option {spec.name} is {value!r}; accepted: {spec.accepted}") from error


def _field(name: str) -> str:
    """The attribute of an option: maxOffsetsPerTrigger -> max_offsets_per_trigger."""
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name)


def option_table(specs: tuple[OptionSpec, ...]) -> str:
    """The options as a Markdown table, for the documentation."""
    rows = [
        f"| `{spec.name}` | {spec.default or ''} | {_cell(spec.accepted)} | {spec.meaning} |"
        for spec in specs
    ]
    return "\n".join(["| option | default | accepted | meaning |", "|---|---|---|---|", *rows])


def _cell(content: str) -> str:
    """A text that may hold a table's own bars."""
    return content.replace("|", "\\|")

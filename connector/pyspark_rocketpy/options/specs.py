"""Definition of an option: its form, its parser, its table row."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from pyspark_rocketpy.errors import OptionError
from pyspark_rocketpy.options.foreign_names import option_hint, with_present_names
from rocketpy_proto.model.topic_pattern import PatternError, TopicPattern

_DURATION = re.compile(r"(\d{1,9}) ?(ms|s|m|h)")
_GROUP = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")
TOPIC_NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")
TOPIC_ACCEPTED = "letters, digits, %, |, _ and -; up to 127"
WRITER_CHARACTERS_MAX = 255
# Marks of SQL92 expressions that tags do not have.
_EXPRESSION = re.compile(r"""['"=<>()]|\s(?:AND|OR|IN|IS|BETWEEN|LIKE)\s""", re.IGNORECASE)
_UNITS_MS = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
# Options that Spark itself adds to a writer's or reader's options.
SPARK_OPTIONS = frozenset(
    {"path", "checkpointlocation", "queryname", "outputmode", "triggerinterval"}
)
# CREATE TABLE passes all properties of the table: its provider, and each option twice. One of the
# two has a prefix, which distinguishes options from properties.
PROVIDER, OPTION_PREFIX = "provider", "option."
FORMAT = "rocketpy"


def text(value: str) -> str:
    """Returns a stripped text. Raises ValueError for blanks alone."""
    if not value.strip():
        raise ValueError
    return value.strip()


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """One option: its name, default as text, accepted values, meaning, and parser."""

    name: str
    default: str | None
    accepted: str
    meaning: str
    parse: Callable[[str], object] = text
    # Suffix of its Python attribute: _ms of connectTimeout.
    unit: str = ""


class FormError(ValueError):
    """A value that is not accepted, with the reason."""


def unchanged(value: str) -> str:
    """Returns a text with leading and trailing blanks. Raises ValueError for blanks alone."""
    text(value)
    return value


def group(value: str) -> str:
    """Returns a name of a consumer group as RocketMQ accepts it. Raises ValueError."""
    if _GROUP.fullmatch(value.strip()) is None:
        raise ValueError
    return value.strip()


def topic_name(value: str) -> str:
    """Returns a name of a topic as RocketMQ accepts it. Raises ValueError."""
    if TOPIC_NAME.fullmatch(value.strip()) is None:
        raise ValueError
    return value.strip()


def writer_name(value: str) -> str:
    """Returns a name that the broker's ledger and message properties accept. Raises ValueError."""
    name = text(value)
    if len(name) > WRITER_CHARACTERS_MAX or min(name) < " ":
        raise ValueError
    return name


def names(value: str) -> tuple[str, ...]:
    """Returns the names that commas separate. Raises ValueError if one is empty or repeated."""
    parts = tuple(part.strip() for part in value.split(","))
    if not all(parts) or len(set(parts)) != len(parts):
        raise ValueError
    return parts


def endpoints(value: str) -> tuple[str, ...]:
    """Returns hosts with ports. Raises ValueError."""
    found = names(value.replace(";", ","))
    for endpoint in found:
        host, colon, port = endpoint.rpartition(":")
        if not (host and colon and port.isdecimal() and 0 < int(port) < 65536):
            raise ValueError
    return found


def tags(value: str) -> tuple[str, ...] | None:
    """Returns the tags of `TagA || TagB`, each once; None for `*`. Raises ValueError.

    The form is RocketMQ's.
    """
    parts = tuple(dict.fromkeys(part.strip() for part in value.split("||")))
    if parts == ("*",):
        return None
    if not all(parts) or "*" in parts or any(_EXPRESSION.search(part) for part in parts):
        raise ValueError
    return parts


def keys(value: str) -> tuple[str, ...]:
    """Returns the keys that commas separate. Raises ValueError for a repeated key.

    Also raises it for a key with a blank, since blanks separate a message's keys in RocketMQ.
    """
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


def _duration_ms(low_ms: int, high_ms: int) -> Callable[[str], int]:
    """Returns a parser for a number with a unit: `500ms`, `20s`, `15m`, `1h`."""

    def parse(value: str) -> int:
        match = _DURATION.fullmatch(value.strip().lower())
        ms = -1 if match is None else int(match[1]) * _UNITS_MS[match[2]]
        if not low_ms <= ms <= high_ms:
            raise ValueError
        return ms

    return parse


def _duration_text(ms: int) -> str:
    unit = next(unit for unit, unit_ms in _UNITS_MS.items() if ms % unit_ms == 0)
    return f"{ms // _UNITS_MS[unit]}{unit}" if ms else "0s"


def pattern(value: str) -> str:
    """Returns a regular expression, as brokers read it. Raises ValueError."""
    try:
        return TopicPattern(text(value)).text
    except PatternError as error:
        raise FormError(str(error)) from error


def _one_of(kind: type[Enum]) -> Callable[[str], Enum]:
    """Returns a parser for the member with a value, ignoring case."""

    def parse(value: str) -> Enum:
        return {str(member.value).lower(): member for member in kind}[value.strip().lower()]

    return parse


def choice_spec(name: str, kind: type[Enum], default: str | None, meaning: str) -> OptionSpec:
    """Returns an option with the values of an enumeration."""
    accepted = ", ".join(str(member.value) for member in kind)
    return OptionSpec(name, default, accepted, meaning, _one_of(kind))


def number_spec(name: str, default: int | None, low: int, high: int, meaning: str) -> OptionSpec:
    """Returns an option with a whole number from `low` to `high`."""
    shown = None if default is None else str(default)
    return OptionSpec(name, shown, f"{low} to {high}", meaning, _number(low, high))


def duration_spec(name: str, default: str, low_ms: int, high_ms: int, meaning: str) -> OptionSpec:
    """Returns an option with a duration from `low_ms` to `high_ms`, as a number with a unit."""
    accepted = f"{_duration_text(low_ms)} to {_duration_text(high_ms)}; units ms, s, m, h"
    return OptionSpec(name, default, accepted, meaning, _duration_ms(low_ms, high_ms), "_ms")


def switch_spec(name: str, default: str, meaning: str) -> OptionSpec:
    """Returns an option that is true or false."""
    return OptionSpec(name, default, "true or false", meaning, _switch)


@dataclass(frozen=True, slots=True)
class OptionTable:
    """All options of a source or a sink, and hints for their names in other connectors.

    `others` are the options of the opposite side; `others_place` says where they belong.
    """

    specs: tuple[OptionSpec, ...]
    foreign_names: Mapping[str, str]
    others: tuple[OptionSpec, ...]
    others_place: str


def parse(options: Mapping[str, str], table: OptionTable, *, is_shared: bool) -> dict[str, object]:
    """Returns the value of each option, by its name in Python. Raises OptionError.

    If source and sink share the options, the options of the opposite side are ignored.
    """
    given = given_options(options)
    _refuse_unknown(given, table, is_shared=is_shared)
    values: dict[str, object] = {}
    for spec in table.specs:
        value = given.get(spec.name.lower(), spec.default)
        values[_field(spec)] = None if value is None else _value(spec, value)
    _require_address(values)
    return values


def _require_address(values: Mapping[str, object]) -> None:
    if values["endpoints"] is not None and values.get("name_server") is not None:
        raise OptionError(
            "options endpoints and nameServer are both set; endpoints is for a broker of rocketpy, "
            "nameServer for a cluster of Apache RocketMQ: leave one out"
        )
    if values["endpoints"] is None and values.get("name_server") is None:
        cluster = ", or nameServer, for a cluster of Apache RocketMQ"
        raise OptionError(
            "option endpoints is missing; set it to host:port of a "
            f"broker{cluster if 'name_server' in values else ''}. For a catalog table Spark "
            "passes only the options in WITH (...)"
        )


def given_options(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the options that the user has set, by lower-case names, without Spark's own.

    Raises OptionError.
    """
    given = {name.lower(): value for name, value in options.items()}
    if given.get(PROVIDER, "").lower() == FORMAT:
        given = {
            name.removeprefix(OPTION_PREFIX): value
            for name, value in given.items()
            if name.startswith(OPTION_PREFIX)
        }
    given = {name: value for name, value in given.items() if name not in SPARK_OPTIONS}
    return with_present_names(given)


def _refuse_unknown(given: Mapping[str, str], table: OptionTable, *, is_shared: bool) -> None:
    known, others = _by_lower_case(table.specs), _by_lower_case(table.others)
    for name in sorted(given.keys() - known.keys()):
        if name not in others or (name in table.foreign_names and not is_shared):
            raise OptionError(
                f"unknown option {name}; {option_hint(name, known, table.foreign_names)}"
            )
        if not is_shared:
            raise OptionError(f"option {others[name]} belongs to {table.others_place}")


def _by_lower_case(specs: Iterable[OptionSpec]) -> dict[str, str]:
    return {spec.name.lower(): spec.name for spec in specs}


def _value(spec: OptionSpec, value: str) -> object:
    try:
        return spec.parse(value)
    except (ValueError, KeyError) as error:
        reason = f"; {error}" if isinstance(error, FormError) else ""
        raise OptionError(
            f"option {spec.name} is {value!r}; accepted: {spec.accepted}{reason}"
        ) from error


def _field(spec: OptionSpec) -> str:
    """Returns an option's attribute: connectTimeout -> connect_timeout_ms."""
    words = ("_" + letter.lower() if letter.isupper() else letter for letter in spec.name)
    return "".join(words) + spec.unit


def option_table(specs: tuple[OptionSpec, ...]) -> str:
    """Returns the options as a Markdown table, for the documentation."""
    rows = [
        f"| `{spec.name}` | {spec.default or ''} | {_cell(spec.accepted)} | {spec.meaning} |"
        for spec in specs
    ]
    return "\n".join(["| option | default | accepted | meaning |", "|---|---|---|---|", *rows])


def _cell(content: str) -> str:
    """Returns a text with escaped table bars."""
    return content.replace("|", "\\|")

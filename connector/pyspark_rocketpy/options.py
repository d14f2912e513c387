"""The options of source and sink: one table, parsed once into frozen values. Holds no state.

Names follow Spark's Kafka source where a concept is the same, and RocketMQ where it is RocketMQ's.
Errors come before any job starts, and name the option, the value, and what is accepted.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from pyspark_rocketpy.errors import OptionError


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """One option: its name, default as text, what it accepts, and what it does."""

    name: str
    default: str | None
    accepted: str
    meaning: str
    parse: Callable[[str], object]


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError
    return value.strip()


def _names(value: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in value.split(","))
    if not all(names) or len(set(names)) != len(names):
        raise ValueError
    return names


def _endpoints(value: str) -> tuple[str, ...]:
    endpoints = _names(value.replace(";", ","))
    for endpoint in endpoints:
        host, colon, port = endpoint.rpartition(":")
        if not (host and colon and port.isdecimal() and 0 < int(port) < 65536):
            raise ValueError
    return endpoints


def _switch(value: str) -> bool:
    return {"true": True, "false": False}[value.strip().lower()]


def _number(low: int, high: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        number = int(value)
        if not low <= number <= high:
            raise ValueError
        return number

    return parse


class Delivery(str, Enum):
    """What the sink promises."""

    AT_LEAST_ONCE = "at-least-once"


def _number_spec(name: str, default: int | None, low: int, high: int, meaning: str) -> OptionSpec:
    shown = None if default is None else str(default)
    return OptionSpec(name, shown, f"{low} to {high}", meaning, _number(low, high))


def _switch_spec(name: str, default: str, meaning: str) -> OptionSpec:
    return OptionSpec(name, default, "true or false", meaning, _switch)


_ENDPOINTS = OptionSpec(
    "endpoints",
    None,
    "host:port, or several with commas",
    "brokers to ask, in this order",
    _endpoints,
)
_CONNECT_TIMEOUT = _number_spec(
    "connectTimeoutMs", 8_000, 100, 600_000, "how long a broker that does not answer is waited for"
)
_JSON_FORM = '{"topic":{"0":12,"1":-2}} (-2 earliest, -1 latest)'

SOURCE_OPTIONS = (
    _ENDPOINTS,
    OptionSpec("topic", None, "a topic", "the topic to read", _text),
    OptionSpec("topics", None, "topics with commas", "several topics to read", _names),
    OptionSpec(
        "consumerGroup",
        "pyspark-rocketpy",
        "a group name",
        "group under which offsets are kept and progress is reported",
        _text,
    ),
    OptionSpec(
        "startingOffsets",
        None,
        f"earliest, latest, committed, or JSON such as {_JSON_FORM}",
        "where a new query begins; a restarted one follows its checkpoint "
        "(default: latest in streaming, earliest in batch)",
        _text,
    ),
    OptionSpec(
        "endingOffsets",
        "latest",
        f"latest, or JSON such as {_JSON_FORM}",
        "where a batch ends",
        _text,
    ),
    _number_spec("maxOffsetsPerTrigger", None, 1, 1 << 62, "messages in one micro-batch"),
    _number_spec("minPartitions", None, 1, 100_000, "tasks to read with, at least"),
    _switch_spec("failOnDataLoss", "true", "whether lost messages fail the query"),
    _switch_spec("commitOffsets", "true", "whether progress is reported to the broker"),
    OptionSpec("columns", None, "column names with commas", "the columns to read", _names),
    _number_spec(
        "fetchBytesMax", 4 << 20, 1_024, 8 << 20, "bytes of one response, which is one Arrow batch"
    ),
    _CONNECT_TIMEOUT,
    _number_spec(
        "pullTimeoutMs", 30_000, 100, 3_600_000, "after which a pull is begun anew where it stands"
    ),
)
SINK_OPTIONS = (
    _ENDPOINTS,
    OptionSpec("topic", None, "a topic", "topic of rows that name none in a column", _text),
    OptionSpec(
        "delivery",
        Delivery.AT_LEAST_ONCE.value,
        "at-least-once (exactly-once is not available in this version)",
        "what a batch that is written again does",
        Delivery,
    ),
    _number_spec("batchBytesMax", 2 << 20, 1_024, 16 << 20, "bytes of one block"),
    _CONNECT_TIMEOUT,
)
# What Spark itself puts among a writer's or reader's options.
SPARK_OPTIONS = frozenset(
    {"path", "checkpointlocation", "queryname", "outputmode", "triggerinterval"}
)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Checked options of the source; times in ms, sizes in bytes."""

    endpoints: tuple[str, ...]
    topics: tuple[str, ...]
    consumer_group: str
    starting_offsets: str | None
    ending_offsets: str
    max_offsets_per_trigger: int | None
    min_partitions: int | None
    fail_on_data_loss: bool
    commit_offsets: bool
    columns: tuple[str, ...] | None
    fetch_bytes_max: int
    connect_timeout_ms: int
    pull_timeout_ms: int

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Raises OptionError."""
        values = _parse(options, SOURCE_OPTIONS)
        topic, topics = values.pop("topic"), values.pop("topics")
        if (topic is None) == (topics is None):
            raise OptionError("set either option topic or option topics, and not both")
        return cls(topics=topics or (topic,), **values)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Checked options of the sink; times in ms, sizes in bytes."""

    endpoints: tuple[str, ...]
    topic: str | None
    delivery: Delivery
    batch_bytes_max: int
    connect_timeout_ms: int

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """Raises OptionError."""
        return cls(**_parse(options, SINK_OPTIONS))  # type: ignore[arg-type]


def _parse(options: Mapping[str, str], specs: tuple[OptionSpec, ...]) -> dict[str, object]:
    given = {name.lower(): value for name, value in options.items()}
    _refuse_unknown(given, specs)
    values: dict[str, object] = {}
    for spec in specs:
        text = given.get(spec.name.lower(), spec.default)
        values[_field(spec.name)] = None if text is None else _value(spec, text)
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


def _value(spec: OptionSpec, text: str) -> object:
    try:
        return spec.parse(text)
    except (ValueError, KeyError) as error:
        raise OptionError(f"option {spec.name} is {text!r}; accepted: {spec.accepted}") from error


def _field(name: str) -> str:
    """The attribute of an option: maxOffsetsPerTrigger -> max_offsets_per_trigger."""
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name)


def option_table(specs: tuple[OptionSpec, ...]) -> str:
    """The options as a Markdown table, for the documentation."""
    rows = [
        f"| `{spec.name}` | {spec.default or ''} | {spec.accepted} | {spec.meaning} |"
        for spec in specs
    ]
    return "\n".join(["| option | default | accepted | meaning |", "|---|---|---|---|", *rows])

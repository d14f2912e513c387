"""Aliases for `mqadmin` commands and options.

`rocketpy topicStatus -t T -n HOST:PORT` is `rocketpy topic describe T --endpoint HOST:PORT`. An
alias is not in the help, and prints the output of the `rocketpy` command. An option without a
counterpart, or without a meaning for a single broker, is refused; the error names the command.
Source: docs/design/broker_behaviour.md section 9.7.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import typer
from typer.core import TyperGroup

from rocketpy_broker.cli.mqadmin.other_names import OTHERS

Words = list[str]
Translation = Callable[[str], Words]
_TIME = re.compile(r"(\d{4}-\d{2}-\d{2})#(\d{2}:\d{2}:\d{2})(?::(\d{1,3}))?")
_YES, _NO = frozenset({"true", "yes", "1"}), frozenset({"false", "no", "0"})


class NoTranslationError(Exception):
    """Error for an option or value without a counterpart."""


def option(name: str) -> Translation:
    """Returns a translation that passes the value to the option `name`."""
    return lambda value: [name, value]


def switch(on: str, off: str | None = None) -> Translation:
    """Returns a translation of `true` to `on` and of `false` to `off`, or to no option."""

    def translate(value: str) -> Words:
        if value.lower() in _YES:
            return [on]
        if value.lower() in _NO:
            return [] if off is None else [off]
        raise NoTranslationError(f"{value!r} is neither true nor false")

    return translate


def time_of(name: str) -> Translation:
    """Returns a translation of a time to the option `name`.

    A time is `now`, ms since 1970, or 2026-05-01#08:00:00:000 in local time as in mqadmin.
    """

    def translate(value: str) -> Words:
        if value in {"now", "-1"}:
            return [name, "latest"]
        if value.isascii() and value.isdecimal():
            seconds, ms = divmod(int(value), 1000)
            try:
                found = datetime.fromtimestamp(seconds, timezone.utc).replace(microsecond=ms * 1000)
            except (ValueError, OverflowError, OSError) as error:
                raise NoTranslationError(f"{value} is no time in ms since 1970") from error
            return [name, found.isoformat()]
        match = _TIME.fullmatch(value)
        if match is None:
            accepted = "now, ms since 1970, or like 2026-05-01#08:00:00:000"
            raise NoTranslationError(f"{value!r} is no time; it is {accepted}")
        try:
            # `astimezone` would shift a local time that the zone skips by an hour.
            local = datetime.fromisoformat(f"{match[1]}T{match[2]}")
            found = datetime.fromtimestamp(local.timestamp(), timezone.utc)
        except (ValueError, OverflowError, OSError) as error:
            raise NoTranslationError(f"{value!r} is no time") from error
        return [name, found.replace(microsecond=int(match[3] or 0) * 1000).isoformat()]

    return translate


@dataclass(frozen=True, slots=True)
class Verb:
    """The translation of an mqadmin command: the `rocketpy` command and its options.

    `arguments` are the options that become positional arguments, in this order. `also` is appended.
    Without the option `decisive`, or if its value is in `negative`, `otherwise` applies.
    """

    command: Sequence[str]
    options: Mapping[str, Translation] = field(default_factory=dict)
    arguments: Sequence[str] = ()
    also: Sequence[str] = ()
    decisive: str | None = None
    otherwise: Verb | None = None
    negative: frozenset[str] = _NO

    def chosen(self, given: Mapping[str, str]) -> Verb:
        """Returns the translation that applies to these options."""
        is_decided = given.get(self.decisive or "", "false").lower() not in self.negative
        return self if is_decided or self.otherwise is None else self.otherwise

    def knows(self, name: str) -> bool:
        """True if this translation or `otherwise` accepts an option."""
        is_own = name in self.options or name in self.arguments or name == self.decisive
        return is_own or (self.otherwise is not None and self.otherwise.knows(name))

    def unknown(self, name: str) -> NoTranslationError:
        """Returns the error for an option without a counterpart."""
        return NoTranslationError(
            f"-{name} means nothing to a single broker, or has no counterpart; "
            f"see `rocketpy {' '.join(self.command)} --help`"
        )

    def words(self, given: Mapping[str, str]) -> Words:
        """Returns the command line of `rocketpy`. Raises NoTranslationError."""
        found = [*self.command, *self.also]
        for name, value in given.items():
            if name in self.options:
                found += self.options[name](value)
            elif name not in self.arguments:
                raise self.unknown(name)
        return found


def _dropped(_value: str) -> Words:
    return []


def _only(accepted: str) -> Translation:
    """Returns a translation that drops the value `accepted` and refuses all other values."""

    def translate(value: str) -> Words:
        if value.lower() != accepted:
            raise NoTranslationError(
                f"{value!r} is no type of key; it is K for keys, or T for tags"
            )
        return []

    return translate


ENDPOINT = {"n": option("--endpoint")}
# For commands with a broker address.
BROKER = {**ENDPOINT, "b": option("--endpoint")}
TOPIC = {**ENDPOINT, "t": option("--topic")}
_QUERY = {**ENDPOINT, "m": option("--count")}
_SUBSCRIPTION_GROUP: Mapping[str, Translation] = {
    **BROKER,
    "s": switch("--consume", "--no-consume"),
    "m": switch("--from-min", "--no-from-min"),
    "d": switch("--broadcast", "--no-broadcast"),
    "o": switch("--orderly", "--no-orderly"),
    "q": option("--retry-queues"),
    "r": option("--retry-max-times"),
    "i": option("--broker-id"),
    "w": option("--slow-broker-id"),
    "a": switch("--notify", "--no-notify"),
}
_RESET: Mapping[str, Translation] = {
    **BROKER,
    "t": option("--topic"),
    "f": switch("--force"),
    "q": option("--queue"),
}
VERBS: Mapping[str, Verb] = {
    "topicList": Verb(["topic", "list"], ENDPOINT),
    "updateTopic": Verb(
        ["topic", "update"],
        {
            **BROKER,
            "r": option("--read-queues"),
            "w": option("--write-queues"),
            "p": option("--perm"),
            "o": switch("--order", "--no-order"),
        },
        ["t"],
        ["--create"],
    ),
    "deleteTopic": Verb(["topic", "delete"], ENDPOINT, ["t"], ["--yes"]),
    "topicStatus": Verb(["topic", "describe"], ENDPOINT, ["t"]),
    "consumerProgress": Verb(
        ["lag"],
        {**ENDPOINT, "g": option("--group")},
        ["t"],
        decisive="g",
        otherwise=Verb(["group", "list"], ENDPOINT),
    ),
    # mqadmin requires a time; an offset takes precedence over it.
    "resetOffsetByTime": Verb(
        ["group", "reset"],
        {**_RESET, "s": _dropped, "o": option("--to")},
        ["g"],
        ["--yes"],
        decisive="o",
        otherwise=Verb(["group", "reset"], {**_RESET, "s": time_of("--to")}, ["g"], ["--yes"]),
    ),
    "queryMsgById": Verb(
        ["message", "resend"],
        {**TOPIC, "s": _dropped},
        ["i"],
        decisive="s",
        otherwise=Verb(["message", "view"], {**TOPIC, "s": _dropped}, ["i"]),
    ),
    "queryMsgByKey": Verb(
        ["message", "query"],
        {**_QUERY, "p": _only("t"), "k": option("--tag")},
        ["t"],
        decisive="p",
        otherwise=Verb(["message", "query"], {**_QUERY, "p": _only("k")}, ["t", "k"]),
        negative=_NO | {"k"},
    ),
    "queryMsgByUniqueKey": Verb(["message", "query"], ENDPOINT, ["t", "i"]),
    "queryMsgByOffset": Verb(
        ["message", "view"], {**TOPIC, "i": option("--queue"), "o": option("--offset")}
    ),
    "printMsg": Verb(["message", "tail"], ENDPOINT, ["t"], ["--from", "earliest"]),
    "consumeMessage": Verb(
        ["message", "pull"],
        {**ENDPOINT, "g": option("--group"), "c": option("--count")},
        ["t"],
        decisive="g",
        otherwise=Verb(["message", "tail"], {**ENDPOINT, "c": option("--count")}, ["t"]),
    ),
    "sendMessage": Verb(
        ["message", "send"],
        {**ENDPOINT, "p": option("--body"), "k": option("--key"), "c": option("--tag")}
        | {"i": option("--queue-id")},
        ["t"],
    ),
    "brokerStatus": Verb(["broker", "status"], BROKER),
    "clusterList": Verb(["broker", "status"], ENDPOINT),
    "statsAll": Verb(["topic", "stats"], ENDPOINT, ["t"]),
    "updateSubGroup": Verb(["group", "update"], _SUBSCRIPTION_GROUP, ["g"], ["--create"]),
    "deleteSubGroup": Verb(["group", "delete"], BROKER, ["g"], ["--yes"]),
    "getConsumerConfig": Verb(["group", "describe"], ENDPOINT, ["g"]),
    "consumerConnection": Verb(["client", "list"], {**BROKER, "g": option("--group")}),
    "producerConnection": Verb(["client", "list"], {**ENDPOINT, "g": option("--group")}),
    "cleanUnusedTopic": Verb(["clean"], BROKER, also=["--unused-topics"]),
    "cleanExpiredCQ": Verb(["clean"], BROKER),
}
_NAMES = {name.lower(): name for name in (*VERBS, *OTHERS)}


def translated(name: str, words: Sequence[str]) -> Words:
    """Returns the command line of `rocketpy` for one of mqadmin. Raises NoTranslationError.

    Options with two hyphens are passed unchanged.
    """
    given: dict[str, str] = {}
    ours: Words = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "-h":
            ours.append("--help")
        elif word.startswith("--") or not word.startswith("-") or word == "-":
            ours.append(word)
        elif VERBS[name].knows(word[1]):
            given[word[1]] = _value(word, left)
        else:
            raise VERBS[name].unknown(word[1])
    verb = VERBS[name].chosen(given)
    arguments = [each for option in verb.arguments for each in _arguments(given.get(option))]
    return [*verb.words(given), *ours, *(["--", *arguments] if arguments else [])]


def _value(word: str, left: Words) -> str:
    """Returns the value of `-tT`, or of `-t T`, where it is the first word of `left`."""
    if len(word) > 2:
        return word[2:]
    if not left:
        raise NoTranslationError(f"{word} has no value")
    return left.pop(0)


def _arguments(value: str | None) -> Words:
    """Returns the arguments of a value: mqadmin separates ids by commas."""
    return [] if value is None else value.split(",")


class WithMqadminNames(TyperGroup):
    """A command group that also accepts mqadmin's commands."""

    # Typer has its own copy of click's classes since 0.20 and uses click before.
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Translates an mqadmin command; mqadmin ignores the case of its names."""
        name = _NAMES.get(args[0].lower(), "")
        if name in VERBS:
            try:
                args = translated(name, args[1:])
            except NoTranslationError as error:
                raise typer.BadParameter(f"{name}: {error}", ctx) from error
        elif name:
            ctx.fail(f"{name} has no counterpart{OTHERS[name]}")
        return super().resolve_command(ctx, args)

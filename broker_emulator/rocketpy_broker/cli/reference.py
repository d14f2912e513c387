"""Generator of the list of commands in docs/reference/commands.md.

    python -m rocketpy_broker.cli.reference docs/reference/commands.md

It rewrites the list between its marks. A test fails if the document is out of date.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

import typer
from typer.models import ArgumentInfo

from rocketpy_broker.cli.broker_client import CONNECTION_NAMES, connection_options
from rocketpy_broker.cli.commands import imported

PROGRAM = "rocketpy"
_BLANKS = re.compile(r"\s+")


def text() -> str:
    """Returns the commands as Markdown."""
    commands = (line for command in leaves() for line in command.lines())
    return "\n".join((*commands, *_connection_lines())).strip()


def renewed(document: str) -> str:
    """Returns the document with the list up to date. Raises ValueError for a missing mark."""
    before, begin, rest = document.partition("<!-- commands begin -->")
    _, end, after = rest.partition("<!-- commands end -->")
    if not (begin and end):
        raise ValueError(
            "the document lacks a mark: add `<!-- commands begin -->` and `<!-- commands end -->`"
        )
    return f"{before}{begin}\n\n{text()}\n\n{end}{after}"


def _connection_lines() -> Iterator[str]:
    """Yields the options of a connection, which many commands have."""
    yield from ("### Options of connections", "")
    yield from ("Every command with `--endpoint` has these, too.", "")
    yield from ("| option | meaning |", "|---|---|")
    for each in Command((), connection_options).parameters():
        yield f"| {each.names} | {each.meaning} |"
    yield ""


def leaves(
    group: typer.Typer | None = None, words: tuple[str, ...] = (PROGRAM,)
) -> Iterator[Command]:
    """Yields every command that is neither hidden nor a group."""
    group = group or imported()
    for each in group.registered_commands:
        if each.callback is not None and not each.hidden:
            name = each.name or each.callback.__name__.replace("_", "-")
            yield Command((*words, name), each.callback)
    for below in group.registered_groups:
        if below.typer_instance is not None and isinstance(below.name, str):
            yield from leaves(below.typer_instance, (*words, below.name))


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its words, and the function that runs it."""

    words: Sequence[str]
    callback: Callable[..., Any]

    @property
    def help(self) -> str:
        """The help text."""
        return inspect.getdoc(self.callback) or ""

    def parameters(self) -> list[Parameter]:
        """Returns the visible arguments and options, in their order."""
        found = []
        # Python 3.10's `get_type_hints` hides Annotated if the default is None.
        for name, parameter in inspect.signature(self.callback, eval_str=True).parameters.items():
            kind, info = get_args(parameter.annotation)[:2]
            if not info.hidden:
                found.append(Parameter(name, kind, info, parameter.default))
        return found

    def lines(self) -> Iterator[str]:
        """Yields the lines of a heading, the help text and a table of options."""
        parameters = self.parameters()
        if any(each.name == "endpoint" for each in parameters):
            parameters = [each for each in parameters if each.name not in CONNECTION_NAMES]
        usage = " ".join([*self.words, *(each.usage for each in parameters if each.is_argument)])
        yield from (f"### `{usage}`", "", _markdown(self.help), "")
        yield from ("| option | meaning |", "|---|---|")
        yield from (f"| {each.names} | {each.meaning} |" for each in parameters)
        yield ""


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument or option: its name in Python, type, Typer's information and default."""

    name: str
    kind: Any
    info: Any
    default: object

    @property
    def is_argument(self) -> bool:
        """True if the parameter is positional."""
        return isinstance(self.info, ArgumentInfo)

    @property
    def is_required(self) -> bool:
        """True if the parameter has no default."""
        return self.default is inspect.Parameter.empty

    @property
    def usage(self) -> str:
        """The argument as the usage line shows it."""
        name = self.info.metavar or self.name.upper()
        more = "..." if self._is_list else ""
        return f"{name}{more}" if self.is_required else f"[{name}]{more}"

    @property
    def names(self) -> str:
        """The option's names with a placeholder for its value."""
        if self.is_argument:
            return f"`{self.usage}`"
        kebab = self.name.replace("_", "-")
        is_flag = self._type is bool
        default = f"--{kebab}/--no-{kebab}" if is_flag else f"--{kebab}"
        # Within Annotated, Typer stores the first declaration as the default.
        given = (self.info.default, *(self.info.param_decls or ()))
        declared = [each for each in given if isinstance(each, str) and each.startswith("-")]
        names = [part for each in declared or [default] for part in each.split("/")]
        value = "" if is_flag else f" {_escaped(self.info.metavar or self._value)}"
        return ", ".join(f"`{name}`" for name in names) + value

    @property
    def meaning(self) -> str:
        """The help text with the default, or with `Required.`, and the environment variable."""
        notes = [_markdown(self.info.help or "")]
        if self.is_required:
            notes += [] if self.is_argument else ["Required."]
        elif not (self.default is None or isinstance(self.default, bool) or self.default == ""):
            notes.append(f"Default: `{getattr(self.default, 'value', self.default)}`.")
        if self.info.envvar:
            notes.append(f"Environment: `{self.info.envvar}`.")
        return " ".join(notes)

    @property
    def _types(self) -> list[Any]:
        return [each for each in get_args(self.kind) or [self.kind] if each is not type(None)]

    @property
    def _is_list(self) -> bool:
        return any(get_origin(each) is list for each in (self.kind, *self._types))

    @property
    def _type(self) -> Any:
        """The type of a single value."""
        first = self._types[0]
        return get_args(first)[0] if get_origin(first) is list else first

    @property
    def _value(self) -> str:
        if isinstance(self._type, type) and issubclass(self._type, Enum):
            return "|".join(each.value for each in self._type)
        return {int: "N", float: "N", Path: "PATH"}.get(self._type, "TEXT")


def _markdown(text: str) -> str:
    """Returns a text for one line of a table."""
    return _escaped(_BLANKS.sub(" ", text).strip())


def _escaped(text: str) -> str:
    return text.replace("|", "&#124;").replace("<", "&lt;")


def main() -> None:
    """Rewrites the list in the document that the command line names."""
    path = Path(sys.argv[1])
    path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()

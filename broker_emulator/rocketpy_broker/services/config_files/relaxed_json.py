"""Parser of the relaxed JSON that RocketMQ writes and fastjson accepts.

RocketMQ's files are not strict JSON: number keys are unquoted (`{0:10,1:20}`). `json` parses strict
JSON ten times faster. A grammar parses text that `json` refuses. It allows exactly what fastjson
1.2.83 was seen to allow in addition: unquoted integer keys, single quotes, and a comma before a
closing bracket. A text that is cut, or followed by more than white space, is an error and never a
shorter value. (JavaScript and JSON5 parsers were tried: they refuse number keys, or skip what they
do not understand.)
Source: docs/design/storage.md section 11.1.
"""

from __future__ import annotations

import json
import re
from functools import cache

from lark import Lark, Token, Transformer
from lark.exceptions import LarkError

GRAMMAR = r"""
    ?value: fields | array | text | NUMBER -> number
          | "true" -> true | "false" -> false | "null" -> null
    fields: "{" [member ("," member)* ","?] "}"
    member: key ":" value
    key:    text | INTEGER -> number_key
    array:  "[" [value ("," value)* ","?] "]"
    ?text:  DOUBLE_QUOTED -> double_quoted | SINGLE_QUOTED -> single_quoted

    DOUBLE_QUOTED: /"[^"\\]*(\\.[^"\\]*)*"/s
    SINGLE_QUOTED: /'[^'\\]*(\\.[^'\\]*)*'/s
    INTEGER: /-?[0-9]+/
    NUMBER:  /-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?/
    %ignore /[ \t\r\n\f\x08]+/
"""
# A single-quoted text escapes single quotes but not double quotes; JSON does the opposite.
_QUOTES = re.compile(r"""\\.|["]""", re.DOTALL)
_REQUOTED = {"\\'": "'", '"': '\\"'}


class _Values(Transformer[Token, object]):
    """A transformer of grammar rules into Python values."""

    def number(self, children: list[Token]) -> object:
        return json.loads(children[0])

    def true(self, _children: list[Token]) -> bool:
        return True

    def false(self, _children: list[Token]) -> bool:
        return False

    def null(self, _children: list[Token]) -> None:
        return None

    def double_quoted(self, children: list[Token]) -> str:
        return str(json.loads(children[0], strict=False))

    def single_quoted(self, children: list[Token]) -> str:
        inner = _QUOTES.sub(lambda found: _REQUOTED.get(found[0], found[0]), children[0][1:-1])
        return str(json.loads(f'"{inner}"', strict=False))

    def number_key(self, children: list[Token]) -> str:
        return str(int(children[0]))

    def key(self, children: list[str]) -> str:
        return children[0]

    def member(self, children: list[object]) -> list[object]:
        return children

    def fields(self, members: list[tuple[str, object]]) -> dict[str, object]:
        return dict(members)

    def array(self, values: list[object]) -> list[object]:
        return values


@cache
def _parser() -> Lark:
    return Lark(
        GRAMMAR, start="value", parser="lalr", transformer=_Values(), maybe_placeholders=False
    )


def loads(text: str) -> object:
    """Returns the value of `text`; all keys are strings. Raises ValueError."""
    try:
        value: object = json.loads(text, parse_constant=_refuse_constant)
    except ValueError:
        return _loads_relaxed(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return value


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no number of JSON")


def _loads_relaxed(text: str) -> object:
    try:
        return _parser().parse(text)
    except LarkError as error:
        # The first line of Lark's message has the place; the rest lists expected tokens.
        raise ValueError(str(error).partition("\n")[0]) from error

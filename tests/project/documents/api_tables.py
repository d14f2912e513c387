"""Tables of the names on a page of the API, for readers that see the page without the site."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType

from rocketpy_broker.server.http.api.endpoint import STATUS_OF
from rocketpy_broker.server.http.api.requests import query_fields
from rocketpy_broker.server.http.api.routes import ROUTES
from rocketpy_proto.model.codes import ResponseCode
from tests.support.documents import TOP

_DIRECTIVE = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
_SENTENCE_END = re.compile(r"(?<=\.)\s|\n\n")


def api_table(page: str) -> str:
    """Returns the table of a page's names, each with the first sentence of its docstring."""
    text = (TOP / f"docs/reference/{page}.md").read_text(encoding="utf-8")
    lines = ["| name | meaning |", "|---|---|"]
    for path in _DIRECTIVE.findall(text):
        lines += [f"| `{name}` | {_meaning(value)} |" for name, value in _names(path)]
    return "\n".join(lines)


def route_table() -> str:
    """Returns the table of the HTTP API's routes."""
    lines = ["| request | parameters | answer | method |", "|---|---|---|---|"]
    for route in ROUTES:
        keys = ", ".join(f"`{key}`" for key in query_fields(route))
        request = f"{route.method} {route.shown_path}"
        lines.append(f"| `{request}` | {keys} | {route.summary} | `{route.rpc}` |")
    return "\n".join(lines)


def status_table() -> str:
    """Returns the table of the HTTP API's statuses with their codes."""
    lines = ["| status | codes |", "|---|---|"]
    for status in sorted({*STATUS_OF.values()}):
        codes = [ResponseCode(code) for code, each in STATUS_OF.items() if each is status]
        shown = ", ".join(f"{code.value} (`{code.name}`)" for code in codes)
        lines.append(f"| {status.value} | {shown} |")
    return "\n".join(lines)


def _names(path: str) -> Iterator[tuple[str, object]]:
    module_name, _, name = path.rpartition(".")
    try:
        value: object = getattr(importlib.import_module(module_name), name)
    except AttributeError:
        value = importlib.import_module(path)
    if isinstance(value, ModuleType):
        for inner, each in vars(value).items():
            if getattr(each, "__module__", None) == value.__name__ and inner[0] != "_":
                yield f"{name}.{inner}", each
        return
    yield _signature(name, value), value
    if isinstance(value, type) and not issubclass(value, tuple):
        for inner, each in vars(value).items():
            if inner[0] != "_" and (inspect.isfunction(each) or isinstance(each, property)):
                yield f"{name}.{_signature(inner, each)}", each


def _signature(name: str, value: object) -> str:
    """Returns a function's name with its parameters, any other name as it is."""
    if not inspect.isfunction(value):
        return name
    parameters = [each for each in inspect.signature(value).parameters if each != "self"]
    return f"{name}({', '.join(parameters)})"


def _meaning(value: object) -> str:
    text = inspect.getdoc(value) or ""
    first = _SENTENCE_END.split(text, maxsplit=1)[0]
    return " ".join(first.split()).rstrip(":.").replace("|", "\\|")

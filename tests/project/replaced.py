"""Names that tests replace beside the clock, the disk, the socket and the surroundings.

None may exist. A test injects the clock, plants faults of the disk (see
tests/support/store/disk_calls.py) or speaks through a socket, and looks at answers, logs and files.
It meets a limit as it is, or passes a smaller one to the object that it makes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from tests.project.tidy import Source, parse

# The clock, the disk, the socket, and what surrounds the process.
FREE = (
    *("clock.*", "*.sleep_ms", "*.monotonic_ms", "scheduler.pause"),
    *("os.*", "durable.*", "fcntl.*", "Path.*", "message_store.used_ratio"),
    "socket.*",
    *("sys.*", "modules.*", "tempfile.*", "*.Popen", "Popen.*", "resource.*", "ctypes.*"),
    *("secrets.*", "pyspark.*", "display.*"),
)
REPLACERS = {"setattr", "setitem", "delattr", "delitem", "patch", "object"}


def replaced_names(sources: Iterable[Source]) -> Iterator[str]:
    """Yields each name that tests replace, as `owner.name`, with its file."""
    for source in sources:
        for name in _names(source):
            if not any(fnmatchcase(name, each) for each in FREE):
                yield f"{source.path}: {name}"


def _names(source: Source) -> Iterator[str]:
    if not source.is_python or not source.path.startswith("tests/"):
        return
    for node in ast.walk(parse(source.text)):
        match node:
            case ast.Call(func=ast.Attribute(value=by, attr=how), args=[owner, *more]):
                if how in REPLACERS and ast.unparse(by) != "object":
                    yield ".".join([*map(_text, [owner, *more])][: 1 if _is_text(owner) else 2])
            case ast.Assign(targets=[ast.Attribute(value=owner, attr=name)]):
                if name.startswith("_") and ast.unparse(owner) not in {"self", "cls"}:
                    yield f"{_text(owner)}.{name}"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant | ast.JoinedStr)


def _text(node: ast.expr) -> str:
    """Returns the last part of a dotted name, or the last two of a text that names a place."""
    if isinstance(node, ast.Constant):
        return ".".join(str(node.value).split(".")[-2:])
    return ast.unparse(node).strip("'\")").split(".")[-1]

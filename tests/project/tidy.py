"""Rules of style that no linter knows: limits, banned calls, left-overs, idle modules.

Each rule takes one source file and yields a sentence for each place that breaks it. A new
exemption goes into one of the tables below, with its reason.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path, PurePosixPath

FILE_LINES_MAX = 400
# A class of one state machine is not split for its length.
CLASS_FILE_LINES_MAX, CLASS_SHARE = 600, 0.5
FUNCTION_LINES_MAX = 60
MODULES_MAX = 12
LINE_COLUMNS_MAX = 100

BROKER = "broker_emulator/rocketpy_broker"
PACKAGES = ("connector/", "broker_emulator/", "proto/")
PROGRAMS = ("notebooks/", "benchmarks/")
FOLDERS = (*PACKAGES, *PROGRAMS, "tests/", "docs/", "docker/", ".ci/", "tools/")

# Functions that may be longer than the limit: "path::name" -> why.
LONG_FUNCTIONS: dict[str, str] = {
    f"{BROKER}/store/message_store.py::__init__": "a list of parts, no steps",
}

# Functions that may catch everything, since they are the root of a task: "path::name" -> why.
TASK_ROOTS: dict[str, str] = {
    f"{BROKER}/services/hooks/chain.py::_called": "calls a package's code",
    f"{BROKER}/services/observability/metrics/service.py::text": "kept for who asks next",
    f"{BROKER}/services/observability/counters/event_counter.py::call": "harms no caller",
    f"{BROKER}/server/calls/guard.py::enter": "the root of every call",
    f"{BROKER}/server/remoting/server.py::_worked": "the root of every remoting request",
    f"{BROKER}/server/http/server.py::_guard": "the root of every request",
}

# Modules that are started from outside: name, which may hold `*` -> what starts it.
STARTED_FROM_OUTSIDE = {
    "benchmarks.__main__": "`make bench`",
    "benchmarks.peers.__main__": "`make bench-peers`",
    "benchmarks.*.bench_*": "benchmarks.__main__, each in a process of its own",
    "benchmarks.calls.fairness_load": "bench_fairness, a process for each kind of bulk",
    "benchmarks.rocketmq.sdk_program": "sdk_client, in the environment of RocketMQ's SDK",
    "notebooks.*": "people, and tests/spark/test_notebooks.py",
    "rocketpy_broker.__main__": "`python -m rocketpy_broker`",
    "rocketpy_broker.cli.main": "the console script `rocketpy`",
    "rocketpy_broker.cli.reference": "people, to renew docs/reference/commands.md",
    "rocketpy_broker.client.calls.fork_helper": "forked processes that call a LocalBroker",
    "rocketpy_broker.pytest_plugin": "pytest, through the entry point pytest11",
}


@dataclass(frozen=True, slots=True)
class Source:
    """A file of the project: its path from the top, with slashes, and its text."""

    path: str
    text: str

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def is_python(self) -> bool:
        return self.path.endswith(".py")

    @property
    def in_packages(self) -> bool:
        """True if it belongs to one of the import packages."""
        return self.is_python and self.path.startswith(PACKAGES)


@dataclass(frozen=True, slots=True)
class Ban:
    """A call that only certain files may make. `name` and `allowed_in` may hold `*`."""

    name: str
    allowed_in: str
    better: str


BANS = (
    Ban("print", "*/cli/*", "log, or raise an error that says it"),
    Ban("time.time", "*/clock.py", "ask the clock that was injected"),
    Ban("time.time_ns", "*/clock.py", "ask the clock that was injected"),
    Ban("time.monotonic", "*/clock.py", "ask the clock that was injected"),
    Ban("time.sleep", "*/clock.py", "wait by the clock that was injected"),
    Ban("asyncio.sleep", "*/clock.py", "wait by the clock that was injected"),
    Ban("datetime.datetime.now", "*/clock.py", "ask the clock that was injected"),
    Ban(
        "*create_task",
        "*/rocketpy_broker/runtime/tasks.py",
        "start it in a TaskScope, which owns it",
    ),
    Ban(
        "*ensure_future",
        "*/rocketpy_broker/runtime/tasks.py",
        "start it in a TaskScope, which owns it",
    ),
    Ban(
        "os.rename",
        "*/store/files/durable.py",
        "use rocketpy_broker.store.files.durable, which flushes",
    ),
    Ban(
        "os.replace",
        "*/store/files/durable.py",
        "use rocketpy_broker.store.files.durable, which flushes",
    ),
    Ban(
        "shutil.move",
        "*/store/files/durable.py",
        "use rocketpy_broker.store.files.durable, which flushes",
    ),
    Ban(
        "*.rename",
        "*/store/files/durable.py",
        "use rocketpy_broker.store.files.durable, which flushes",
    ),
)


@cache
def parse(text: str) -> ast.Module:
    """Returns the syntax tree; several rules read it."""
    return ast.parse(text)


def sources(top: Path) -> list[Source]:
    """Returns every text file below `top` but for stubs."""
    found = [path for path in top.iterdir() if path.suffix in {".md", ".py", ".toml"}]
    found.append(top / "Makefile")
    for folder in FOLDERS:
        found += [path for path in (top / folder).rglob("*") if _is_written(path)]
    return [
        Source(path.relative_to(top).as_posix(), path.read_text(encoding="utf-8"))
        for path in sorted(found)
    ]


def _is_written(path: Path) -> bool:
    suffixes = {".py", ".proto", ".md", ".yml", ".yaml", ".toml", ".sh"}
    wanted = path.suffix in suffixes or path.parent.name == ".ci"
    return wanted and path.is_file() and "_pb2" not in path.name


def file_length(source: Source) -> Iterator[str]:
    """Yields a Python file that is too long; one that is mostly one class may be longer."""
    count = len(source.lines)
    if not source.is_python or count <= FILE_LINES_MAX:
        return
    lines_max = CLASS_FILE_LINES_MAX if _is_one_class(source) else FILE_LINES_MAX
    if count > lines_max:
        yield f"{source.path}: {count} lines, at most {lines_max}: split it by noun"


def _is_one_class(source: Source) -> bool:
    """True if one class takes most of the file."""
    return any(
        isinstance(node, ast.ClassDef)
        and (node.end_lineno or 0) - node.lineno > CLASS_SHARE * len(source.lines)
        for node in parse(source.text).body
    )


def line_length(source: Source) -> Iterator[str]:
    """Lines that fit beside each other; sentences and tables of a document may be longer."""
    if source.path.endswith(".md"):
        return
    for number, line in enumerate(source.lines, 1):
        if len(line) > LINE_COLUMNS_MAX:
            yield (
                f"{source.path}:{number}: {len(line)} columns, at most {LINE_COLUMNS_MAX}: "
                "break the line"
            )


def function_length(source: Source) -> Iterator[str]:
    """Yields a function that is too long; its signature and docstring do not count."""
    for function in _functions(source):
        body = function.body[1:] if ast.get_docstring(function) else function.body
        if not body:
            continue
        count = (body[-1].end_lineno or 0) - body[0].lineno + 1
        if count > FUNCTION_LINES_MAX and f"{source.path}::{function.name}" not in LONG_FUNCTIONS:
            yield (
                f"{source.path}:{function.lineno}: the body of {function.name} has {count} lines, "
                f"at most {FUNCTION_LINES_MAX}: take a helper out"
            )


def wide_result(source: Source) -> Iterator[str]:
    """Yields a function that returns three results or more without names."""
    if not source.in_packages:
        return
    for function in _functions(source):
        match function.returns:
            case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=parts)):
                if len(parts) > 2:
                    yield (
                        f"{source.path}:{function.lineno}: {function.name} returns a tuple of "
                        f"{len(parts)}: return a frozen dataclass that names them"
                    )


def module_docstring(source: Source) -> Iterator[str]:
    """Yields a module without a docstring."""
    if source.in_packages and not ast.get_docstring(parse(source.text)) and source.text.strip():
        yield (
            f"{source.path}: no docstring at the top: "
            "say what lives here and what a crash does to it, or that it holds no state"
        )


def repeated_name(source: Source) -> Iterator[str]:
    """Yields a file whose name repeats its folder's."""
    path = PurePosixPath(source.path)
    folder = path.parent.name
    names = {folder, folder.removesuffix("s"), folder.removesuffix("es")}
    if source.in_packages and path.stem.split("_")[0] in names:
        yield f"{source.path}: the name repeats its folder's: leave out {folder!r}"


def banned_call(source: Source) -> Iterator[str]:
    """Calls with a better place; see `BANS`."""
    if not source.in_packages:
        return
    aliases = _aliases(source)
    for node in ast.walk(parse(source.text)):
        if not isinstance(node, ast.Call):
            continue
        name = _dotted_name(node.func)
        head, dot, rest = name.partition(".")
        name = aliases.get(head, head) + dot + rest
        for ban in BANS:
            if fnmatchcase(name, ban.name) and not fnmatchcase(source.path, ban.allowed_in):
                yield (
                    f"{source.path}:{node.lineno}: {name}() belongs in {ban.allowed_in}: "
                    f"{ban.better}"
                )


def broad_except(source: Source) -> Iterator[str]:
    """Yields an except for everything outside a task's root that does not raise again."""
    if not source.in_packages:
        return
    for node in ast.walk(parse(source.text)):
        if isinstance(node, ast.ExceptHandler) and _catches_all(node) and not _reraises(node):
            place = _enclosing_function(source, node.lineno)
            if f"{source.path}::{place}" not in TASK_ROOTS:
                yield (
                    f"{source.path}:{node.lineno}: {place} catches everything: "
                    "name the errors that it can answer"
                )


def left_over(source: Source) -> Iterator[str]:
    """Yields notes about work that is left for later."""
    for number, line in enumerate(source.lines, 1):
        for word in re.findall(r"\b(?:T[O]DO|FI[X]ME|X[X]X)\b", line):
            yield f"{source.path}:{number}: {word} is left over: do it now or file an issue"


def one_title(source: Source) -> Iterator[str]:
    """Yields a document without exactly one title."""
    if not source.path.endswith(".md"):
        return
    prose = re.sub(r"^(```|~~~).*?^\1", "", source.text, flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^# .+", prose, flags=re.MULTILINE)
    if len(titles) != 1:
        yield f"{source.path}: {len(titles)} titles: a document has one line that begins with '# '"


RULES: tuple[Callable[[Source], Iterator[str]], ...] = (
    file_length,
    line_length,
    function_length,
    wide_result,
    module_docstring,
    repeated_name,
    banned_call,
    broad_except,
    left_over,
    one_title,
)


def idle_modules(all_sources: Iterable[Source]) -> Iterator[str]:
    """Yields modules that no other module imports and nothing starts; tests do not count."""
    modules: dict[str, str] = {}
    imported: set[str] = set()
    for source in all_sources:
        if not source.is_python or not source.path.startswith((*PACKAGES, *PROGRAMS)):
            continue
        name = _module_name(source.path)
        if not source.path.endswith("/__init__.py"):
            modules[name] = source.path
        imported |= _imports(source) - {name}
    for name in sorted(modules.keys() - imported):
        if not any(fnmatchcase(name, pattern) for pattern in STARTED_FROM_OUTSIDE):
            yield f"{modules[name]}: nobody imports {name}: use it or delete it"


def crowded_folders(all_sources: Iterable[Source]) -> Iterator[str]:
    """Yields each folder with more modules than a reader takes in at once; stubs do not count."""
    counts = Counter(
        source.path.rpartition("/")[0]
        for source in all_sources
        if source.is_python and not source.path.endswith("/__init__.py")
    )
    for folder, count in sorted(counts.items()):
        if count > MODULES_MAX:
            yield f"{folder}: {count} modules, limit {MODULES_MAX}; divide it by subject"


def _module_name(path: str) -> str:
    """Returns `rocketpy_broker.runtime.tasks` for the file rocketpy_broker/runtime/tasks.py."""
    if path.startswith(PACKAGES):
        path = path.partition("/")[2]
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imports(source: Source) -> set[str]:
    """Returns the modules that the source may import: `from a import b` may mean `a.b`."""
    package = _module_name(source.path).split(".")
    if not source.path.endswith("/__init__.py"):
        package.pop()
    names: set[str] = set()
    for node in ast.walk(parse(source.text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            names |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return names


def _aliases(source: Source) -> dict[str, str]:
    """Returns the full names of what a file imports under other names."""
    names: dict[str, str] = {}
    for node in ast.walk(parse(source.text)):
        if isinstance(node, ast.Import):
            names |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return names


def _functions(source: Source) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    if not source.is_python:
        return
    for node in ast.walk(parse(source.text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _enclosing_function(source: Source, number: int) -> str:
    """Returns the name of the innermost function around a line."""
    around = [f for f in _functions(source) if f.lineno <= number <= (f.end_lineno or 0)]
    return max(around, key=lambda function: function.lineno).name if around else "the module"


def _dotted_name(node: ast.expr) -> str:
    """Returns `a.b.c` of an expression, with `?` for a part that is no name."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def _catches_all(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(_dotted_name(kind) in {"Exception", "BaseException"} for kind in kinds)


def _reraises(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None

"""The project keeps the rules of `tidy`, and each rule finds what it is there for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.project import replaced, tidy
from tests.project.tidy import Source

TOP = Path(__file__).resolve().parents[2]
BROKER = "broker_emulator/rocketpy_broker"
Rule = Callable[[Source], Iterator[str]]
# One process parses all sources for all rules.
pytestmark = pytest.mark.xdist_group("sources")


@pytest.mark.parametrize("rule", tidy.RULES, ids=lambda rule: rule.__name__)
def test_every_file_keeps_the_rule(rule: Rule) -> None:
    problems = [problem for source in tidy.sources(TOP) for problem in rule(source)]
    assert not problems, "\n".join(["", *problems])


def test_every_module_is_imported_or_started() -> None:
    problems = list(tidy.idle_modules(tidy.sources(TOP)))
    assert not problems, "\n".join(["", *problems])


def test_no_folder_has_more_modules_than_a_reader_takes_in() -> None:
    assert list(tidy.crowded_folders(tidy.sources(TOP))) == []


@pytest.mark.parametrize("folder", [BROKER, "tests/unit", "benchmarks"])
def test_a_folder_with_a_module_too_many_is_named(folder: str) -> None:
    crowd = [Source(f"{folder}/m{number}.py", "") for number in range(tidy.MODULES_MAX)]
    crowd.append(Source(f"{folder}/__init__.py", ""))
    assert list(tidy.crowded_folders(crowd)) == []
    crowd.append(Source(f"{folder}/test_m.py", ""))
    assert list(tidy.crowded_folders(crowd)) == [
        f"{folder}: 13 modules, limit 12; divide it by subject"
    ]


def test_tests_replace_nothing_but_the_clock_the_disk_and_the_socket() -> None:
    assert list(replaced.replaced_names(tidy.sources(TOP))) == []


def test_a_replaced_name_is_found_however_a_test_replaces_it() -> None:
    lines = (
        'monkeypatch.setattr(Store, "append", fail)',
        'patch.setitem(module.RULES, "topic", rule)',
        'mock.patch("rocketpy_broker.broker.listen", f)',
        "running.broker.server._limit = 3",
        'monkeypatch.setattr(os, "pwrite", fail)',
        "self._limit = 3",
        'setattr(message, "body", b"")',
    )
    source = Source("tests/test_one.py", "\n".join(lines))
    found = [line.removeprefix("tests/test_one.py: ") for line in replaced.replaced_names([source])]
    assert sorted(found) == ["RULES.topic", "Store.append", "broker.listen", "server._limit"]


def test_every_package_is_checked() -> None:
    paths = [source.path for source in tidy.sources(TOP)]
    for package in tidy.PACKAGES:
        assert any(path.startswith(package) and path.endswith(".py") for path in paths), package
    assert {"Makefile", "noxfile.py"} <= set(paths)
    assert ".ci/run" in paths
    assert not [path for path in paths if "_pb2" in path]


@pytest.mark.parametrize("table", [tidy.LONG_FUNCTIONS, tidy.TASK_ROOTS], ids=["long", "roots"])
def test_an_exemption_names_a_function_that_exists(table: dict[str, str]) -> None:
    for place in table:
        path, _, name = place.partition("::")
        assert f"def {name}(" in (TOP / path).read_text(encoding="utf-8"), place


def test_the_stubs_are_those_made_from_the_contract() -> None:
    sums = (TOP / "proto/stubs.sha256").read_text(encoding="ascii").split()
    recorded = dict(zip(sums[1::2], sums[::2], strict=True))
    found = [
        *TOP.glob("proto/**/*.proto"),
        *TOP.glob("proto/rocketpy_proto/**/*_pb2*.py"),
        *TOP.glob("proto/rocketpy_proto/**/*_pb2*.pyi"),
    ]
    actual = {
        path.relative_to(TOP).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in found
    }
    assert actual == recorded, "a .proto file or a stub was changed by hand: run `make proto`"


SAMPLES: list[tuple[Rule, str, str, str]] = [
    (
        tidy.file_length,
        f"{BROKER}/long.py",
        "x = 1\n" * 401,
        f"{BROKER}/long.py: 401 lines, at most 400: split it by noun",
    ),
    (
        tidy.line_length,
        "proto/rocketpy/v1/wide.proto",
        "//" + "-" * 99 + "\n",
        "proto/rocketpy/v1/wide.proto:1: 101 columns, at most 100: break the line",
    ),
    (
        tidy.function_length,
        "tests/test_long.py",
        'def tell():\n    """Say\n    it."""\n' + "    x = 1\n" * 61,
        "tests/test_long.py:1: the body of tell has 61 lines, at most 60: take a helper out",
    ),
    (
        tidy.wide_result,
        f"{BROKER}/wide.py",
        "async def find() -> tuple[int, str, bytes]: ...\n",
        f"{BROKER}/wide.py:1: find returns a tuple of 3: return a frozen dataclass that names them",
    ),
    (
        tidy.module_docstring,
        f"{BROKER}/bare.py",
        "x = 1\n",
        (
            f"{BROKER}/bare.py: no docstring at the top: "
            "say what lives here and what a crash does to it, or that it holds no state"
        ),
    ),
    (
        tidy.repeated_name,
        f"{BROKER}/batches/batch_log.py",
        '"""Decisions."""\n',
        f"{BROKER}/batches/batch_log.py: the name repeats its folder's: leave out 'batches'",
    ),
    (
        tidy.banned_call,
        f"{BROKER}/talk.py",
        "print(1)\n",
        f"{BROKER}/talk.py:1: print() belongs in */cli/*: log, or raise an error that says it",
    ),
    (
        tidy.banned_call,
        f"{BROKER}/nap.py",
        "from time import sleep as nap\nnap(1)\n",
        (
            f"{BROKER}/nap.py:2: time.sleep() belongs in */clock.py: "
            "wait by the clock that was injected"
        ),
    ),
    (
        tidy.banned_call,
        "connector/pyspark_rocketpy/now.py",
        "import time as t\nt.time()\n",
        (
            "connector/pyspark_rocketpy/now.py:2: time.time() belongs in */clock.py: "
            "ask the clock that was injected"
        ),
    ),
    (
        tidy.banned_call,
        f"{BROKER}/orphan.py",
        "import asyncio\nasyncio.get_running_loop().create_task(work())\n",
        (
            f"{BROKER}/orphan.py:2: ?.create_task() belongs in */rocketpy_broker/runtime/tasks.py: "
            "start it in a TaskScope, which owns it"
        ),
    ),
    (
        tidy.banned_call,
        f"{BROKER}/services/move.py",
        "import os\nos.replace(a, b)\n",
        (
            f"{BROKER}/services/move.py:2: os.replace() belongs in */store/files/durable.py: "
            "use rocketpy_broker.store.files.durable, which flushes"
        ),
    ),
    (
        tidy.broad_except,
        f"{BROKER}/deaf.py",
        "def hear():\n    try:\n        x()\n    except (OSError, Exception):\n        pass\n",
        f"{BROKER}/deaf.py:4: hear catches everything: name the errors that it can answer",
    ),
    (
        tidy.broad_except,
        f"{BROKER}/bare.py",
        "def hear():\n    try:\n        x()\n    except:\n        pass\n",
        f"{BROKER}/bare.py:4: hear catches everything: name the errors that it can answer",
    ),
    (
        tidy.left_over,
        "Makefile",
        "all:\n# " + "TO" + "DO write it\n",
        "Makefile:2: " + "TO" + "DO is left over: do it now or file an issue",
    ),
    (
        tidy.one_title,
        "docs/two.md",
        "# One\n```sh\n# no title\n```\n# Two\n",
        "docs/two.md: 2 titles: a document has one line that begins with '# '",
    ),
]


@pytest.mark.parametrize(("rule", "path", "text", "message"), SAMPLES)
def test_a_rule_names_the_place_and_the_way_out(
    rule: Rule, path: str, text: str, message: str
) -> None:
    assert list(rule(Source(path, text))) == [message]


def test_every_rule_has_a_bad_sample() -> None:
    assert {rule for rule, *_ in SAMPLES} == set(tidy.RULES)


def test_a_module_that_nobody_imports_is_named() -> None:
    room = [
        Source(f"{BROKER}/used.py", ""),
        Source(f"{BROKER}/idle.py", "from rocketpy_broker import idle"),
        Source(f"{BROKER}/__init__.py", "from .used import name"),
        Source("tests/test_idle.py", "import rocketpy_broker.idle"),
    ]
    assert list(tidy.idle_modules(room)) == [
        f"{BROKER}/idle.py: nobody imports rocketpy_broker.idle: use it or delete it"
    ]


TIDY = [
    (f"{BROKER}/clock.py", '"""Time."""\nimport time\nnow = time.time()\n'),
    (f"{BROKER}/cli/show.py", '"""A command."""\nprint(1)\n'),
    (f"{BROKER}/words.py", '"""Words."""\ntext = "a".replace("a", "b")\n'),
    (f"{BROKER}/pair.py", '"""A pair."""\ndef f() -> tuple[int, int]: ...\n'),
    (
        f"{BROKER}/clean.py",
        '"""Cleans."""\ntry:\n    x()\nexcept BaseException:\n    undo()\n    raise\n',
    ),
    ("tests/test_nap.py", "import time\ntime.sleep(1)\n"),
    ("docs/one.md", "# One\n" + "word " * 40 + "\n## Part\n"),
]


@pytest.mark.parametrize(("path", "text"), TIDY)
def test_what_is_in_its_place_passes_every_rule(path: str, text: str) -> None:
    source = Source(path, text)
    assert [problem for rule in tidy.RULES for problem in rule(source)] == []

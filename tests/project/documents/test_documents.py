"""Documents and code: tables in documents are the code's, and named things exist."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from benchmarks.peers.options import tuned_table
from benchmarks.peers.report import document as peers_tables
from benchmarks.report import markdown
from pyspark_rocketpy import errors
from pyspark_rocketpy.options.retry_options import RETRY_OPTIONS
from pyspark_rocketpy.options.sink_specs import SINK_OPTIONS
from pyspark_rocketpy.options.source_specs import SOURCE_OPTIONS
from pyspark_rocketpy.options.specs import option_table
from pyspark_rocketpy.options.values import CLUSTER_DIFFERENCES, cluster_table
from pyspark_rocketpy.sink.columns import sink_column_table
from pyspark_rocketpy.source.columns import column_table
from tests.project.documents.api_tables import api_table, route_table, status_table
from tests.project.documents.request_codes import CLIENTS, code_table
from tests.support.documents import DOCUMENTS, NOTES, TOP, blocks, blocks_of, runnable
from tests.support.plugins.cases import commands_of, where

SHOWN = {
    "broker_emulator/rocketpy_broker/services": r"services/: ((?:[a-z_]+, )+[a-z_]+)",
    "broker_emulator/rocketpy_broker/store": r"store/: ((?:[a-z_]+, )+[a-z_]+)",
}
INTEROP = TOP / "tests/interop"
README_LINES_MAX = 150
# Languages of fences without programs.
DATA = {"json", "text", "yaml", "toml"}


def error_table() -> str:
    """Returns the table of errors with a code of their own, in the order of their module."""
    lines = ["| code | error | meaning |", "|---|---|---|"]
    for name, kind in vars(errors).items():
        is_error = isinstance(kind, type) and issubclass(kind, errors.RocketpyError)
        if is_error and "code" in vars(kind) and kind is not errors.RocketpyError:
            meaning = (kind.__doc__ or "").partition("\n")[0].removesuffix(".")
            lines.append(f"| `{kind.code}` | `{name}` | {meaning} |")
    return "\n".join(lines)


def read(path: str) -> str:
    return (TOP / path).read_text(encoding="utf-8")


def assert_table(page: str, name: str, table: str) -> None:
    """Fails unless a page has the table between its marks."""
    text = read(f"docs/{page}.md")
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    found = text[text.index(begin) + len(begin) : text.index(end)].strip()
    assert found == table, f"put this between the marks of {name}:\n{table}"


@pytest.mark.parametrize(
    ("path", "name", "table"),
    [
        ("performance", "figures", markdown(json.loads(read("benchmarks/results.json")))),
        ("peers", "figures", peers_tables()),
        ("peers", "tuned options", tuned_table()),
        ("reference/source", "source options", option_table(SOURCE_OPTIONS)),
        ("reference/source", "retry options", option_table(RETRY_OPTIONS)),
        ("reference/sink", "sink options", option_table(SINK_OPTIONS)),
        ("clusters", "cluster options", cluster_table()),
        ("reference/source", "source columns", column_table()),
        ("reference/sink", "sink columns", sink_column_table()),
        ("troubleshooting", "codes of errors", error_table()),
        ("reference/broker_api", "names", api_table("broker_api")),
        ("reference/connector_api", "names", api_table("connector_api")),
        ("reference/http_api", "routes", route_table()),
        ("reference/http_api", "statuses", status_table()),
        ("clients", "request codes", code_table()),
    ],
)
def test_a_table_of_a_document_is_the_codes(path: str, name: str, table: str) -> None:
    assert_table(path, name, table)


def test_what_is_said_of_options_on_clusters_is_of_options_that_exist() -> None:
    assert CLUSTER_DIFFERENCES.keys() <= {spec.name for spec in (*SOURCE_OPTIONS, *SINK_OPTIONS)}


def test_every_request_code_has_tests_and_every_named_test_is_there() -> None:
    rows = [line.split(" | ") for line in code_table().splitlines()[2:]]
    assert [row[1] for row in rows if not row[3].strip()] == []
    served = {row[1].strip("`") for row in rows}
    for client in CLIENTS:
        there = {
            test for path in client["paths"] for test in re.findall(r"def (test_\w+)\(", read(path))
        }
        assert {test.partition("[")[0] for test in client["codes"]} <= there
        assert {code for codes in client["codes"].values() for code in codes} <= served


PROMISES = json.loads(read("tests/promises.json"))


def promise_table(commands: Mapping[str, Sequence[str]], *, has_tests: bool) -> str:
    """Returns the table of promises, with their tests or without."""
    columns = ["promise", "tests", "run by"] if has_tests else ["promise", "run by"]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for promise in PROMISES:
        tests = promise["tests"]
        quoted = [", ".join(f"`{test}`" for test in tests)] if has_tests else []
        run_by = where(tests, commands, has_names=has_tests)
        lines.append(f"| {' | '.join([promise['promise'], *quoted, run_by])} |")
    return "\n".join(lines)


def test_every_promise_names_tests_that_are_there_and_says_what_runs_them() -> None:
    assert len(PROMISES) > 8
    assert all(promise["tests"] for promise in PROMISES)
    paths: dict[str, set[Path]] = defaultdict(set)
    for path in (TOP / "tests").rglob("test_*.py"):
        for test in re.findall(r"def (test_\w+)\(", path.read_text("utf-8")):
            paths[test].add(path)
    found = {test: sorted(paths[test]) for promise in PROMISES for test in promise["tests"]}
    # A test that does not exist, or a name with two tests, of which a reader finds the wrong one.
    assert {test: there for test, there in found.items() if len(there) != 1} == {}
    commands = commands_of(sorted({path for [path] in found.values()}))
    # `make interop` reads only its folder; the other commands read all folders.
    interop = {test for test in found if "interop" in commands[test]}
    assert [test for test in interop if not found[test][0].is_relative_to(INTEROP)] == []
    for page, has_tests in (("guarantees", False), ("reference/guarantee_tests", True)):
        assert_table(page, "promises", promise_table(commands, has_tests=has_tests))


def test_what_a_table_says_of_tests_names_those_that_make_test_leaves_out() -> None:
    commands = {"a": ["test"], "b": ["test", "torture"], "c": ["torture"], "d": ["interop"]}
    assert where(["a"], commands) == "`make test`"
    assert where(["a", "b"], commands) == "`make test`; more of it in `make torture`"
    assert where(["a", "c"], commands) == "`make test`; `make torture` alone: `c`"
    assert where(["d"], commands) == "`make interop` alone: `d`"
    assert where(["a", "c"], commands, has_names=False) == "`make test`; `make torture`"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_file_that_a_document_names_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    named = re.findall(r"`((?:connector|broker_emulator|proto|tests|docs|docker)/[\w./-]+)`", text)
    linked = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text)
    missing = [path for path in named if not (TOP / path).exists()]
    missing += [path for path in linked if not (document.parent / path).exists()]
    assert missing == []


def test_the_readme_is_short_and_links_every_page() -> None:
    readme = read("README.md")
    assert len(readme.splitlines()) <= README_LINES_MAX
    pages = {f"docs/{path.name}" for path in (TOP / "docs").glob("*.md")}
    assert pages - set(re.findall(r"\]\((docs/[\w.]+)\)", readme)) == set()


def test_every_program_in_a_document_is_run_or_says_why_not() -> None:
    silent = [
        block.name
        for block in blocks()
        if block.language not in DATA
        and (block.language not in {"python", "sh"} or block.reason)
        and len(block.reason) < 15
    ]
    assert silent == [], "name the language, and after `notest:` why nobody runs it"


def test_what_stands_behind_a_language_is_known() -> None:
    notes = {block.name: block.note for block in blocks() if not block.reason}
    assert {name: note for name, note in notes.items() if note not in NOTES} == {}


def test_blocks_that_continue_another_are_one_program_with_it() -> None:
    path = TOP / "docs/page.md"
    text = "```python\na = 1\n```\nThen:\n```sh notest: because\nls\n```\n"
    text += "```python continued\na\n```\n"
    found = list(blocks_of(path, text))
    assert [(block.line, block.text) for block in runnable("python", found)] == [(1, "a = 1\na\n")]
    assert [block.reason for block in found] == ["", "because", ""]
    assert runnable("sh", found) == []


def test_the_layers_of_the_transport_to_a_cluster_are_files() -> None:
    _, _, section = read("docs/architecture.md").partition("## The transport to a cluster")
    table, _, _ = section.partition("\n## ")
    named = set(re.findall(r"`(\w+/\w+\.py)`", table))
    assert len(named) > 12
    folder = TOP / "connector/pyspark_rocketpy/transport/remoting"
    assert all((folder / name).is_file() for name in named)


def test_each_place_of_the_architecture_exists() -> None:
    _, _, section = read("docs/architecture.md").partition("## Places")
    table, _, _ = section.partition("\n## ")
    named = re.findall(r"`((?:broker_emulator|connector|proto)/[\w/]+(?:\.py)?)/?`", table)
    assert len(named) > 10
    assert [name for name in named if not (TOP / name).exists()] == []


def test_a_message_and_a_batch_name_a_file_at_every_step() -> None:
    steps = [line for line in read("docs/architecture.md").splitlines() if re.match(r"\| \d", line)]
    assert len(steps) > 25
    assert [step for step in steps if not re.search(r"\| `[\w/]+\.py` \|$", step)] == []


@pytest.mark.parametrize("folder", SHOWN)
def test_the_picture_shows_every_folder(folder: str) -> None:
    words = re.sub(r"<[^>]+>", " ", read("docs/architecture.svg")).split()
    found = re.search(SHOWN[folder], " ".join(words))
    assert found is not None
    folders = {path.parent.name for path in (TOP / folder).glob("*/__init__.py")}
    assert set(found[1].split(", ")) == folders

"""Tables of the tests that run each RPC and each feature with each client.

`tests/compatibility.json` names tests. A test is a client's if it has a case below one of the
client's paths, with the client's parameter. So no table can name a test that does not exist, or a
client that a test does not run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from tests.support.documents import TOP

Table = Mapping[str, Any]
DATA: Mapping[str, list[Table]] = json.loads((TOP / "tests/compatibility.json").read_text("utf-8"))
CLIENTS = DATA["clients"]
KINDS = ("RPCs", "features")
NOT_TESTED = "not tested"


@dataclass(frozen=True)
class Case:
    """A case of a test: its path below tests/, its parameters, and its make target."""

    path: PurePosixPath
    test: str
    parameters: frozenset[str]
    command: str

    @classmethod
    def of(cls, node_id: str, command: str) -> Case:
        """Returns the case with pytest's id."""
        place, _, parameters = node_id.removesuffix("]").partition("[")
        path, _, test = place.removeprefix("tests/").rpartition("::")
        return cls(PurePosixPath(path), test, frozenset(parameters.split("-")), command)

    def has(self, client: Table, named: str) -> bool:
        """True if it is a case of the test that a row names, with a client."""
        test, _, parameters = named.removesuffix("]").partition("[")
        needed = {*filter(None, parameters.split("-"))}
        return self.test == test and any(
            self.path.is_relative_to(path) and needed | {*filter(None, [own])} <= self.parameters
            for path, own in client["cases"].items()
        )


def clients_of(kind: str) -> list[Table]:
    """Returns the clients that have a kind of rows: RPCs are for clients that call them."""
    return [client for client in CLIENTS if kind == "features" or client.get("rpcs")]


def found_tests(row: Table, client: Table, cases: Iterable[Case]) -> dict[str, str]:
    """Returns the tests of a row and a client, with the make target of each."""
    return {
        named: case.command for named in row["tests"] for case in cases if case.has(client, named)
    }


def reason(row: Table, client: Table) -> str:
    """Returns the reason that a client does not have it, or an empty text."""
    reasons: Mapping[str, list[str]] = row.get("unsupported", {})
    return next((text for text, names in reasons.items() if client["client"] in names), "")


def rpcs_of(node_id: str) -> set[str]:
    """Returns the RPCs for which the table names the test with this id."""
    case = Case.of(node_id, "")
    clients = clients_of("RPCs")
    return {
        row["name"] for row in DATA["RPCs"] for each in clients if found_tests(row, each, [case])
    }


def overview(kind: str, cases: Sequence[Case]) -> str:
    """Returns a table of rows and clients: `yes` is tested, `no` unsupported, empty not tested."""
    clients = clients_of(kind)

    def cell(row: Table, client: Table) -> str:
        if reason(row, client):
            return "no"
        return "yes" if found_tests(row, client, cases) else ""

    rows = [
        [f"`{row['name']}`" if kind == "RPCs" else row["name"]]
        + [cell(row, client) for client in clients]
        for row in DATA[kind]
    ]
    return _markdown([kind.removesuffix("s"), *(client["client"] for client in clients)], rows)


def details(kind: str, cases: Sequence[Case]) -> str:
    """Returns a table of the tests of each row, for the clients that have the same ones."""
    rows = list[list[str]]()
    for row in DATA[kind]:
        cells: dict[tuple[str, ...], list[str]] = {}
        for client in clients_of(kind):
            found = found_tests(row, client, cases)
            tests = ", ".join(f"`{test}`" for test in found)
            text = reason(row, client)
            status = f"unsupported: {text}" if text else "tested" if found else NOT_TESTED
            commands = ", ".join(f"`make {each}`" for each in sorted(set(found.values())))
            cells.setdefault((status, tests, commands), []).append(client["client"])
        rows += [[row["name"], ", ".join(names), *cell] for cell, names in cells.items()]
    return _markdown([kind.removesuffix("s"), "clients", "status", "tests", "run by"], rows)


def _markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])

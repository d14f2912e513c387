"""Table of the served request codes, each with the tests of its requests and clients."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable
from pathlib import Path

from rocketpy_proto.model.codes import RequestCode
from tests.project.documents.compatibility import Case
from tests.support.documents import TOP

BROKER = TOP / "broker_emulator/rocketpy_broker"
SERVERS = {
    "broker": sorted((BROKER / "server/remoting/processors").rglob("*.py")),
    "name server": [BROKER / "nameserver/processors.py"],
}
FOLDERS = ("remoting", "nameserver", "replication")
# The connector's calls; the contract of transports makes all of them.
CONNECTOR = TOP / "connector/pyspark_rocketpy/transport/remoting"
CLIENTS = json.loads((TOP / "tests/interop/request_codes.json").read_text(encoding="utf-8"))


def code_table() -> str:
    """Returns the table: code, server, test modules, and the tests of each client."""
    names = [client["client"] for client in CLIENTS]
    columns = ["code", "request", "server", "tests", "connector", *names]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    modules = {path: _codes(path) for name in FOLDERS for path in _tests(name)}
    by_connector = set[str]().union(*(_codes(path) for path in sorted(CONNECTOR.rglob("*.py"))))
    for server, paths in SERVERS.items():
        for code in sorted(set[str]().union(*map(_registered, paths)), key=_number):
            tests = ", ".join(
                path.stem.removeprefix("test_") for path in modules if code in modules[path]
            )
            contract = "contract" if code in by_connector else ""
            by_client = (", ".join(_named(client["codes"], code)) for client in CLIENTS)
            cells = [str(_number(code)), f"`{code}`", server, tests, contract, *by_client]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def codes_of(node_id: str) -> set[str]:
    """Returns the codes that the table names for the case of a test with this id, in lower case."""
    case = Case.of(node_id, "")
    found = set[str]()
    for client in CLIENTS:
        parameters = client["parameters"]
        table = {"cases": {path.removeprefix("tests/"): "" for path in client["paths"]}}
        if not parameters or case.parameters.intersection(parameters):
            found.update(
                *(codes for test, codes in client["codes"].items() if case.has(table, test))
            )
    return {code.lower() for code in found}


def _tests(folder: str) -> list[Path]:
    """Returns the tests of a folder, and the modules with requests that several of them make."""
    found = (TOP / "tests/broker" / folder).rglob("*.py")
    return sorted(found, key=lambda path: path.name)


def _number(code: str) -> int:
    return RequestCode[code].value


def _named(codes: dict[str, list[str]], code: str) -> Iterable[str]:
    return (f"`{test}`" for test, named in codes.items() if code in named)


def _codes(path: Path) -> set[str]:
    """Returns the names of the request codes that a file uses."""
    return _codes_in(ast.parse(path.read_text(encoding="utf-8")))


def _registered(path: Path) -> set[str]:
    """Returns the request codes in the table `by_code` of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tables = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return set[str]().union(*(_codes_in(node) for node in tables if node.name == "by_code"))


def _codes_in(tree: ast.AST) -> set[str]:
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in {"Code", "RequestCode"}
        and node.attr in RequestCode.__members__
    }

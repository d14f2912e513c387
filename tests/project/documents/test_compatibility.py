"""The tables of RPCs, features and clients agree with the tests that exist."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rocketpy_proto.apache.rocketmq.v2 import service_pb2
from tests.project.documents.compatibility import (
    CLIENTS,
    DATA,
    KINDS,
    Case,
    details,
    found_tests,
    overview,
)
from tests.project.documents.test_documents import assert_table
from tests.support.documents import TOP
from tests.support.plugins.cases import collected

# One process collects the cases of all clients once.
pytestmark = pytest.mark.xdist_group("compatibility")
JAVA = {"client": "Java 5.5.0", "cases": {"interop/remoting": "5.5.0"}}


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    """Returns the cases of all clients."""
    paths = sorted({path for client in CLIENTS for path in client["cases"]})
    there = [TOP / "tests" / path for path in paths if (TOP / "tests" / path).exists()]
    return [Case.of(*each) for each in collected(there).items()]


@pytest.mark.parametrize("kind", KINDS)
def test_the_tables_of_documents_are_those_of_the_tests(cases: Sequence[Case], kind: str) -> None:
    assert_table("reference/client_tests", f"tests of {kind}", details(kind, cases))
    assert_table("clients", f"clients of {kind}", overview(kind, cases))


def test_every_rpc_of_the_interface_has_a_row() -> None:
    methods = service_pb2.DESCRIPTOR.services_by_name["MessagingService"].methods
    assert [row["name"] for row in DATA["RPCs"]] == [method.name for method in methods]


@pytest.mark.parametrize("kind", KINDS)
def test_every_named_test_is_that_of_a_client(cases: Sequence[Case], kind: str) -> None:
    named = {test for row in DATA[kind] for test in row["tests"]}
    found = {
        test for row in DATA[kind] for client in CLIENTS for test in found_tests(row, client, cases)
    }
    assert named - found == set()
    assert all(row["tests"] for row in DATA[kind])


def test_every_reason_is_that_of_a_client_of_the_tables() -> None:
    names = {client["client"] for client in CLIENTS}
    for row in (*DATA["RPCs"], *DATA["features"]):
        given = [name for clients in row.get("unsupported", {}).values() for name in clients]
        assert len(given) == len(set(given)), row["name"]
        assert set(given) <= names, row["name"]


@pytest.mark.parametrize(
    ("node_id", "named", "is_found"),
    [
        ("tests/interop/remoting/test_a.py::test_x[5.5.0-sync]", "test_x", True),
        ("tests/interop/remoting/test_a.py::test_x[sync-5.5.0]", "test_x[sync]", True),
        ("tests/interop/remoting/test_a.py::test_x[5.5.0-async]", "test_x[sync]", False),
        ("tests/interop/remoting/test_a.py::test_x[go-sync]", "test_x", False),
        ("tests/interop/remoting/test_a.py::test_x", "test_x", False),
        ("tests/interop/remoting/test_a.py::test_xy[5.5.0]", "test_x", False),
        ("tests/interop/other/test_a.py::test_x[5.5.0]", "test_x", False),
    ],
)
def test_a_test_counts_for_a_client_by_its_path_and_its_parameter(
    node_id: str, named: str, is_found: bool
) -> None:
    found = found_tests({"tests": [named]}, JAVA, [Case.of(node_id, "interop")])
    assert found == ({named: "interop"} if is_found else {})

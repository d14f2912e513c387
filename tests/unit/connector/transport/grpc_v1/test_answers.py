"""Calls of the connector and their answers: a table that is tested to be complete.

Busy and broken calls are repeated after a wait, within their time; another store is refused by
name. An impossible answer is an error, never a default that is used or kept. A real gRPC server
answers. The tests of pulls test the other answers to pulls.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
from google.protobuf.message import Message

import pyspark_rocketpy
from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import (
    BrokerBusyError,
    BrokerError,
    CommitError,
    ConnectionFailedError,
    OtherStoreError,
)
from pyspark_rocketpy.transport.grpc_v1.client import client_for, forget_client
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from pyspark_rocketpy.transport.retries import BACKOFF_MS_MAX
from tests.support.scripted_answers import (
    GARBAGE,
    METHODS,
    SILENCE,
    AnsweringServer,
    Fault,
    answering,
)
from tests.unit.connector.transport.grpc_v1.call_table import (
    RIGHT,
    STORE_ID,
    SUBSCRIPTION,
    TABLE,
    Subject,
    with_status,
)

BUSY, OTHER_STORE, REFUSED = 2, 501, 1
# Time limit for a silent server; a busy machine may use it up for more than one try.
SILENT_MS = 1_000


def faults_of(name: str) -> dict[str, Fault]:
    """Returns the temporary faults."""
    return {
        "busy": with_status(name, BUSY, "too many requests"),
        "away": grpc.StatusCode.UNAVAILABLE,
        "silence": SILENCE,
    }


@pytest.fixture
def server() -> Iterator[AnsweringServer]:
    with answering(RIGHT) as running:
        yield running


@dataclass
class Waits:
    """The connector's waits in ms, which end at once; after `needed` waits the fault is over."""

    server: AnsweringServer
    needed: int = 1
    waits_ms: list[int] = field(default_factory=list)

    def sleep_ms(self, wait_ms: int) -> None:
        self.waits_ms.append(wait_ms)
        if len(self.waits_ms) >= self.needed:
            self.server.faults.clear()


@pytest.fixture
def waits(server: AnsweringServer, monkeypatch: pytest.MonkeyPatch) -> Waits:
    noted = Waits(server)
    monkeypatch.setattr(clock, "sleep_ms", noted.sleep_ms)
    return noted


def called_in_connector() -> set[str]:
    """Returns the methods of the contract that the connector's code names."""
    names: set[str] = set()
    for path in Path(pyspark_rocketpy.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, ast.Constant) and str(node.value).startswith("/rocketpy.v1."):
                names.add(str(node.value).rpartition("/")[2])
    return names & METHODS.keys()


def test_the_table_has_every_call_of_the_connector() -> None:
    assert called_in_connector() == TABLE.keys() == RIGHT.keys()


@pytest.mark.parametrize("name", TABLE)
def test_a_right_answer(server: AnsweringServer, waits: Waits, name: str) -> None:
    assert TABLE[name].exercise(Subject(server.config, 0)) == TABLE[name].result
    assert server.calls[name] > 0
    assert waits.waits_ms == []


@pytest.mark.parametrize("name", [name for name, row in TABLE.items() if not row.is_once])
@pytest.mark.parametrize("fault", ["busy", "away"])
def test_a_fault_that_passes_is_waited_for_and_the_call_is_made_again(
    server: AnsweringServer, waits: Waits, name: str, fault: str
) -> None:
    """Makes the first call of a process: a failed answer is neither kept nor used."""
    subject = Subject(server.config, 5)
    if name != "GetBrokerInfo":
        client_for(server.config)
    server.faults[name] = faults_of(name)[fault]
    waits.needed = 3
    assert TABLE[name].exercise(subject) == TABLE[name].result
    assert waits.waits_ms == [100, 200, 400]
    # The process has the right information about its broker.
    assert TABLE["GetBrokerInfo"].exercise(subject) == TABLE["GetBrokerInfo"].result


@pytest.mark.parametrize("name", [name for name, row in TABLE.items() if not row.is_once])
def test_a_broker_that_says_nothing_meets_the_deadline_and_is_asked_again(
    server: AnsweringServer, waits: Waits, name: str
) -> None:
    config = ClientConfig(server.config.endpoints, SILENT_MS, SILENT_MS)
    subject = Subject(config, 1_000, SILENT_MS)
    # The first query is not repeated if the connection fails.
    subject.queries.bounds(SUBSCRIPTION)
    server.faults[name] = SILENCE
    assert TABLE[name].exercise(subject) == TABLE[name].result
    assert waits.waits_ms[0] == 100
    forget_client(config)


@pytest.mark.parametrize("name", TABLE)
def test_a_fault_that_stays_is_an_error_after_the_retries(
    server: AnsweringServer, waits: Waits, name: str
) -> None:
    client_for(server.config)
    server.faults[name] = faults_of(name)["busy"]
    waits.needed = 1_000
    with pytest.raises(BrokerBusyError, match=r"too many requests \(response code 2\)"):
        TABLE[name].exercise(Subject(server.config, 8))
    assert len(waits.waits_ms) == (0 if TABLE[name].is_once else 8)
    assert max(waits.waits_ms, default=0) <= BACKOFF_MS_MAX


@pytest.mark.parametrize("name", TABLE)
def test_another_store_is_refused_by_name_and_its_connection_is_left(
    server: AnsweringServer, waits: Waits, name: str
) -> None:
    client = client_for(server.config)
    server.faults[name] = with_status(name, OTHER_STORE, "store 12 is meant, this is store 34")
    with pytest.raises(OtherStoreError, match="store 12 is meant, this is store 34"):
        TABLE[name].exercise(Subject(server.config, 8))
    assert waits.waits_ms == []
    server.faults.clear()
    assert client_for(server.config) is not client


@pytest.mark.parametrize("name", TABLE)
def test_a_refusal_is_the_broker_s_error_at_once(
    server: AnsweringServer, waits: Waits, name: str
) -> None:
    client_for(server.config)
    server.faults[name] = with_status(name, REFUSED, "no such thing")
    with pytest.raises(BrokerError, match=r"no such thing \(response code 1\)"):
        TABLE[name].exercise(Subject(server.config, 8))
    assert waits.waits_ms == []


@pytest.mark.parametrize("name", TABLE)
def test_bytes_that_are_no_answer_are_an_error_that_names_the_broker(
    server: AnsweringServer, waits: Waits, name: str
) -> None:
    client_for(server.config)
    server.faults[name] = GARBAGE
    waits.needed = 1_000
    with pytest.raises(ConnectionFailedError, match=rf"127\.0\.0\.1:{server.port}.*INTERNAL"):
        TABLE[name].exercise(Subject(server.config, 2))


WRONG = [
    pytest.param(name, answer, id=f"{name}-{number}")
    for name, row in TABLE.items()
    # The tests of pulls test wrong answers to Pull.
    if name != "Pull"
    for number, answer in enumerate(
        [*row.wrong, *([] if row.is_empty_right else [with_status(name, 0, "")])]
    )
]


@pytest.mark.parametrize(("name", "answer"), WRONG)
def test_an_answer_that_cannot_be_meant_is_an_error_and_nothing_of_it_is_kept(
    server: AnsweringServer, waits: Waits, name: str, answer: Message
) -> None:
    subject = Subject(server.config, 2)
    client_for(server.config)
    server.faults[name] = answer
    waits.needed = 1_000
    with pytest.raises((BrokerError, CommitError)):
        TABLE[name].exercise(subject)
    assert server.calls[name] <= 4
    server.faults.clear()
    assert TABLE[name].exercise(subject) == TABLE[name].result


def test_bounds_of_another_store_than_before_are_not_believed(server: AnsweringServer) -> None:
    queries = Subject(server.config, 2).queries
    queries.require_store("12")
    with pytest.raises(
        OtherStoreError, match=f"query reads store 12, but store {STORE_ID} answered"
    ):
        queries.bounds(SUBSCRIPTION)


def test_the_next_endpoint_is_asked_where_the_first_is_busy(
    server: AnsweringServer, waits: Waits
) -> None:
    with answering(RIGHT) as second:
        server.faults["GetBrokerInfo"] = faults_of("GetBrokerInfo")["busy"]
        config = ClientConfig((*server.config.endpoints, *second.config.endpoints), 30_000)
        assert client_for(config).endpoint == second.config.endpoints[0]
        forget_client(config)
    assert waits.waits_ms == []

"""H04: a master and a slave take over from each other in turn; one is ours, one is RocketMQ's.

Each keeps its own directory. RocketMQ's broker changes its role by its configuration and a restart,
as without a controller; ours by `rocketpy broker promote` and `rocketpy store align`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from rocketpy_broker.runtime.clock import SystemClock
from rocketpy_proto.model.configs import SubscriptionGroupConfig
from rocketpy_proto.remoting import RequestCode, ResponseCode
from rocketpy_proto.remoting.headers.pulls import QueryMessageRequest
from rocketpy_proto.remoting.headers.topics import CreateTopicRequest
from tests.interop.cluster.connection import Connection
from tests.interop.cluster.messages import (
    Outgoing,
    Queue,
    body_of,
    commit,
    committed,
    pull,
    records_of,
    send,
    until_pullable,
)
from tests.interop.cluster.processes import ServerProcess, until
from tests.interop.cluster.servers import (
    BROKER_PORTS,
    CLUSTER,
    LOOPBACK,
    MASTER_ID,
    SLAVE_ID,
    WITHOUT_TLS,
    Broker,
    BrokerSpec,
    NameServer,
    OwnProgram,
    free_port,
    log_of,
)
from tests.interop.rocketmq import V4, V5, V5_3
from tests.support.time_limits import WAIT_SECONDS_MAX

pytestmark = [pytest.mark.slow, pytest.mark.timeout(10 * WAIT_SECONDS_MAX)]
NAME, GROUP = "broker-c", "readers"
QUEUE = Queue("orders")
SEGMENT_BYTES = 16 << 20
COUNT = 10
AS_SLAVE = ("--broker-role", "SLAVE", "--broker-id", str(SLAVE_ID))


def rocketpy(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rocketpy_broker", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_SECONDS_MAX,
    )


class OurBroker(ServerProcess):
    """A broker of ours. It keeps its directory and its ports in each role."""

    def __init__(self, folder: Path, name_server: str) -> None:
        port, grpc_port = free_port(BROKER_PORTS), free_port((0,))
        self.store = folder / "store"
        self.address, self._endpoint = f"{LOOPBACK}:{port}", f"{LOOPBACK}:{grpc_port}"
        words = ["--data", str(self.store), "--port", str(grpc_port), "--name-server", name_server]
        words += ["--remoting-port", str(port), "--ha-port", str(port + 1), "--http-port", "0"]
        words += ["--name-server-port", "0"]
        words += ["--broker-name", NAME, "--cluster-name", CLUSTER, "--disk-full-ratio", "1"]
        words += ["--commit-log-segment-bytes", str(SEGMENT_BYTES)]
        self._words = ("broker", *words)
        super().__init__("ours", folder, OwnProgram(self._words))

    def start_with(self, *options: str) -> None:
        """Starts it with more options, and waits until it listens."""
        self._program = OwnProgram([*self._words, *options])
        self.start()
        until(self._listens, "listened", [self])

    def _listens(self) -> bool:
        with Connection(self.address):
            return True

    def promote(self) -> None:
        """Makes the slave a master, once it has noticed that its master is gone."""
        words = ("broker", "promote", "--endpoint", self._endpoint)
        until(lambda: rocketpy(*words).returncode == 0, "promoted", [self])
        # It starts again.
        until(lambda: self._role() == "ASYNC_MASTER", "a master", [self])

    def _role(self) -> str:
        done = rocketpy("broker", "status", "--json", "--endpoint", self._endpoint)
        return str(json.loads(done.stdout)["brokerRole"]) if done.returncode == 0 else ""

    def align(self, master: str) -> dict[str, int]:
        """Makes the store a slave's; returns the number of removed messages by topic."""
        done = rocketpy("store", "align", str(self.store), "--master", master, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        removed: dict[str, int] = json.loads(done.stdout)["removed"]
        return removed


class Chain:
    """The two brokers, their name server, and the messages and offset that both must have."""

    def __init__(self, folder: Path, version: str) -> None:
        self._folder = folder
        self._version = version
        self._names = NameServer("names", folder / "names", is_own=True)
        self._names.start()
        self.ours = OurBroker(folder / "ours", self._names.address)
        self.theirs = self._theirs(MASTER_ID)
        self._sent: list[bytes] = []
        self._lost: list[bytes] = []

    def kill(self) -> None:
        for each in (self.ours, self.theirs, self._names):
            each.kill()

    def _theirs(self, broker_id: int) -> Broker:
        conf = {"slaveReadEnable": "true"}
        spec = BrokerSpec(NAME, broker_id, self._version, conf, WITHOUT_TLS)
        return Broker(spec, self._folder / "theirs", [self._names.address])

    def start_theirs(self, broker_id: int) -> None:
        """Starts RocketMQ's broker on its directory, as a master or as a slave."""
        self.theirs = self._theirs(broker_id)
        self.theirs.start()
        self.theirs.until_it_answers()

    def create(self, master: Broker | OurBroker) -> None:
        """Creates the topic and the group at the first master."""
        until(lambda: is_created(master.address), "created", [master])

    def send(self, master: Broker | OurBroker) -> None:
        """Sends messages to a master, and commits an offset there."""
        with Connection(master.address) as connection:
            self._sent += self._bodies_sent(master, connection)
            until_pullable(connection, QUEUE, len(self._sent) - 1)
            commit(connection, GROUP, QUEUE, len(self._sent) - 1).ok()

    def send_lost(self, master: Broker | OurBroker) -> None:
        """Sends messages that the slave does not get."""
        with Connection(master.address) as connection:
            self._lost += self._bodies_sent(master, connection)

    def _bodies_sent(self, master: Broker | OurBroker, connection: Connection) -> list[bytes]:
        first = len(self._sent) + len(self._lost)
        new = [b"message %d" % number for number in range(first, first + COUNT)]
        for body in new:
            # A broker that has just become a master may refuse at first.
            until(partial(is_sent, connection, body), "sent", [master])
        return new

    def _check(self, broker: Broker | OurBroker) -> None:
        with Connection(broker.address) as connection:
            until(lambda: bodies(connection) == self._sent, "read", [broker])
            wanted = [[body] for body in self._sent]
            until(
                lambda: [by_key(connection, body) for body in self._sent] == wanted,
                "found by their keys",
                [broker],
            )
            assert all(by_key(connection, body) == [] for body in self._lost)
            # RocketMQ 5 fetches offsets from its master each minute.
            until(lambda: offset(connection) == len(self._sent) - 1, "offset kept", [broker])

    def check(self, *brokers: Broker | OurBroker) -> None:
        """Waits until each broker has all messages, keys and the offset; compares the logs.

        A broker that is not named has the same log up to its end.
        """
        for each in brokers:
            self._check(each)
        ours, theirs = (log_of(self._folder / name / "store") for name in ("ours", "theirs"))
        end = min(len(ours.rstrip(b"\0")), len(theirs.rstrip(b"\0")))
        assert ours[:end] == theirs[:end]
        assert self._sent[-1] in ours[:end] or len(brokers) == 1


def is_sent(connection: Connection, body: bytes) -> bool:
    message = Outgoing(body, {"TAGS": "a", "KEYS": key_of(body)})
    return send(connection, QUEUE, message).code == ResponseCode.SUCCESS


def key_of(body: bytes) -> str:
    return body.decode().replace(" ", "-")


def is_created(address: str) -> bool:
    header = CreateTopicRequest(
        topic=QUEUE.topic, default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6
    )
    with Connection(address) as connection:
        group = SubscriptionGroupConfig(GROUP)
        connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header).ok()
        connection.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group).ok()
    return True


def bodies(connection: Connection) -> list[bytes]:
    """Returns the bodies up to the first refusal: slaves of RocketMQ lose topics for moments."""
    found: list[bytes] = []
    while (answer := pull(connection, QUEUE, len(found))).code == ResponseCode.SUCCESS:
        found += [body_of(record) for record in records_of(answer)]
    return found


def by_key(connection: Connection, body: bytes) -> list[bytes]:
    """Returns the bodies that the index finds by a message's key."""
    end_ms = SystemClock().now_ms() + 3_600_000
    header = QueryMessageRequest(
        topic=QUEUE.topic, key=key_of(body), max_num=32, begin_ms=0, end_ms=end_ms
    )
    answer = connection.ask(RequestCode.QUERY_MESSAGE, header)
    is_found = answer.code == ResponseCode.SUCCESS
    return [body_of(record) for record in records_of(answer)] if is_found else []


def offset(connection: Connection) -> int | None:
    answer = committed(connection, GROUP, QUEUE)
    return int(answer.header.offset) if answer.code == ResponseCode.SUCCESS else None


@pytest.fixture(params=[V5, V5_3, V4])
def chain(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Chain]:
    """Yields a chain with each version, and nothing but its name server runs."""
    made = Chain(tmp_path, request.param)
    yield made
    made.kill()


def test_h04_from_rocketmqs_master_to_ours_and_back_twice(chain: Chain) -> None:
    ours = chain.ours
    chain.start_theirs(MASTER_ID)
    chain.create(chain.theirs)
    ours.start_with(*AS_SLAVE)
    chain.send(chain.theirs)
    chain.check(chain.theirs, ours)
    chain.theirs.kill()
    ours.promote()
    chain.send(ours)
    # The old master had no message that ours lacked: its directory comes back as a slave's.
    chain.start_theirs(SLAVE_ID)
    chain.check(ours, chain.theirs)
    ours.stop()
    chain.theirs.stop()
    chain.start_theirs(MASTER_ID)
    chain.send(chain.theirs)
    assert ours.align(chain.theirs.address) == {}
    ours.start_with(*AS_SLAVE)
    chain.check(chain.theirs, ours)
    chain.theirs.kill()
    ours.promote()
    chain.send(ours)
    chain.check(ours)


def test_h04_from_our_master_to_rocketmqs_and_back(chain: Chain) -> None:
    ours = chain.ours
    ours.start_with()
    chain.create(ours)
    chain.start_theirs(SLAVE_ID)
    chain.send(ours)
    chain.check(ours, chain.theirs)
    chain.theirs.stop()
    chain.send_lost(ours)
    ours.kill()
    chain.start_theirs(MASTER_ID)
    chain.send(chain.theirs)
    assert ours.align(chain.theirs.address) == {QUEUE.topic: COUNT}
    ours.start_with(*AS_SLAVE)
    chain.check(chain.theirs, ours)
    chain.theirs.stop()
    ours.promote()
    chain.send(ours)
    chain.start_theirs(SLAVE_ID)
    chain.check(ours, chain.theirs)

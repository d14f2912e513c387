"""H01, H03: our slave at masters of RocketMQ. Its log is equal to theirs, byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rocketpy_proto.remoting import RequestCode, ResponseCode
from rocketpy_proto.remoting.headers.topics import CreateTopicRequest
from tests.interop.cluster.connection import Connection
from tests.interop.cluster.messages import Outgoing, Queue, bodies, max_offset, pull, put
from tests.interop.cluster.processes import ServerProcess, until
from tests.interop.cluster.servers import (
    BROKER_PORTS,
    CLUSTER,
    LOOPBACK,
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

NAME = "broker-j"
QUEUE = Queue("orders")
SEGMENT_BYTES = 16 << 20


class Slave(ServerProcess):
    """A slave of ours."""

    def __init__(self, folder: Path, options: Sequence[str]) -> None:
        port = free_port(BROKER_PORTS)
        self.store = folder / "store"
        self.address = f"{LOOPBACK}:{port}"
        words = ["--data", str(self.store), "--port", "0", "--remoting-port", str(port)]
        words += ["--broker-name", NAME, "--cluster-name", CLUSTER, "--disk-full-ratio", "1"]
        words += ["--broker-role", "SLAVE", "--broker-id", str(SLAVE_ID), "--http-port", "0"]
        words += ["--commit-log-segment-bytes", str(SEGMENT_BYTES), *options]
        super().__init__(f"{NAME}-slave", folder, OwnProgram(["broker", *words]))

    def has(self, count: int) -> bool:
        """True if readers see this number of messages."""
        with Connection(self.address) as connection:
            is_read = pull(connection, QUEUE).code == ResponseCode.SUCCESS
            return is_read and max_offset(connection, QUEUE) == count


def lag_of(master: Broker) -> int | None:
    """Returns the bytes that the slave lacks; None without a slave, or without the request."""
    with Connection(master.address) as connection:
        status = connection.ask(RequestCode.GET_BROKER_HA_STATUS).ok().content
    return min((int(each.diff) for each in status.connections), default=None)


def create_topic(address: str) -> bool:
    """Creates the topic."""
    header = CreateTopicRequest(
        topic=QUEUE.topic, default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6
    )
    with Connection(address) as connection:
        connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header).ok()
    return True


@pytest.mark.parametrize("version", [V5, V5_3, V4])
def test_h01_h03_our_slave_has_the_log_of_a_master_of_rocketmq_and_serves_it(
    tmp_path: Path, version: str, ending: list[ServerProcess]
) -> None:
    name_server = NameServer("names", tmp_path / "names", is_own=True)
    name_server.start()
    ending.append(name_server)
    spec = BrokerSpec(NAME, version=version, system_properties=WITHOUT_TLS)
    master = Broker(spec, tmp_path / "master", [name_server.address])
    master.start()
    ending.append(master)
    master.until_it_answers()
    until(lambda: create_topic(master.address), "topic created", [master])
    large = Outgoing(b"x" * 3_000_000)
    sent = [b"%d" % number for number in range(20)]
    with Connection(master.address) as connection:
        # More than a segment: RocketMQ gives an empty slave its last one only.
        for _ in range(7):
            put(connection, QUEUE, large)
        for body in sent[:10]:
            put(connection, QUEUE, Outgoing(body))
        slave = Slave(tmp_path / "slave", ["--name-server", name_server.address])
        slave.start()
        ending.append(slave)
        for body in sent[10:]:
            put(connection, QUEUE, Outgoing(body, properties={"TAGS": "a", "KEYS": "k"}))
    until(lambda: slave.has(len(sent) + 7), "copied", [master, slave])
    with Connection(slave.address) as at_slave:
        assert bodies(at_slave, QUEUE)[7:] == sent
    if version != V4:
        until(lambda: lag_of(master) == 0, "acknowledged", [master, slave])
    slave.stop()
    master.stop()
    ours = log_of(slave.store)
    theirs = log_of(tmp_path / "master" / "store")
    assert len(ours) > SEGMENT_BYTES
    assert theirs[: len(ours)] == ours[: len(theirs)]


def test_h01_our_sync_slave_is_waited_for_by_a_master_of_rocketmq(
    tmp_path: Path, ending: list[ServerProcess]
) -> None:
    conf = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "slaveTimeout": 200_000}
    spec = BrokerSpec(NAME, version=V5, conf=conf, system_properties=WITHOUT_TLS)
    master = Broker(spec, tmp_path / "master", [])
    master.start()
    ending.append(master)
    master.until_it_answers()
    slave = Slave(tmp_path / "slave", ["--master", master.address])
    slave.start()
    ending.append(slave)
    until(lambda: create_topic(master.address), "topic created", [master])
    with Connection(master.address) as connection:
        for number in range(20):
            put(connection, QUEUE, Outgoing(b"%d" % number))
    # Each answer has waited for the slave's disk: its log has all of them, also after a kill.
    slave.kill()
    master.stop()
    theirs = log_of(tmp_path / "master" / "store").rstrip(b"\0")
    assert log_of(slave.store)[: len(theirs)] == theirs

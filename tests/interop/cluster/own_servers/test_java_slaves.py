"""H01, H02: slaves of RocketMQ at our master. Their logs are equal to ours, byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rocketpy_proto.remoting import RequestCode, ResponseCode
from rocketpy_proto.remoting.headers.topics import CreateTopicRequest
from tests.interop.cluster.connection import Connection
from tests.interop.cluster.messages import Outgoing, Queue, bodies, max_offset, pull, put, send
from tests.interop.cluster.processes import ServerProcess, until
from tests.interop.cluster.servers import (
    BROKER_PORTS,
    CLUSTER,
    LOOPBACK,
    SLAVE_ID,
    WITHOUT_TLS,
    Broker,
    BrokerSpec,
    OwnProgram,
    free_port,
    log_of,
)
from tests.interop.rocketmq import V4, V5, V5_3

NAME = "broker-h"
QUEUE = Queue("orders")
SEGMENT_BYTES = 16 << 20


class Master(ServerProcess):
    """A master of ours, with a port for slaves and a name server."""

    def __init__(self, folder: Path, options: Sequence[str]) -> None:
        port, name_server = free_port(BROKER_PORTS), free_port((0,))
        self.store = folder / "store"
        self.address = f"{LOOPBACK}:{port}"
        self.name_server = f"{LOOPBACK}:{name_server}"
        words = ["--data", str(self.store), "--port", "0", "--remoting-port", str(port)]
        words += ["--name-server-port", str(name_server), "--ha-port", str(port + 1)]
        words += ["--broker-name", NAME, "--cluster-name", CLUSTER, "--disk-full-ratio", "1"]
        words += ["--commit-log-segment-bytes", str(SEGMENT_BYTES), *options]
        super().__init__(NAME, folder, OwnProgram(["broker", *words]))


@pytest.fixture(params=[V5, V5_3, V4])
def slave_version(request: pytest.FixtureRequest) -> str:
    """Returns each version that a slave may have."""
    version: str = request.param
    return version


def started(tmp_path: Path, *options: str) -> Master:
    master = Master(tmp_path / "master", options)
    master.start()
    until(lambda: has_topic(master.address), "topic created", [master])
    return master


def has_topic(address: str) -> bool:
    """Creates the topic."""
    header = CreateTopicRequest(topic=QUEUE.topic, read_queue_nums=1, write_queue_nums=1)
    with Connection(address) as connection:
        connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header).ok()
    return True


def with_slave(master: Master, version: str, tmp_path: Path) -> Broker:
    conf = {"slaveReadEnable": "true"}
    spec = BrokerSpec(NAME, SLAVE_ID, version, conf, WITHOUT_TLS)
    slave = Broker(spec, tmp_path / "slave", [master.name_server])
    slave.start()
    slave.until_it_answers()
    return slave


def lag_of(master: Master) -> int | None:
    """Returns the bytes that the slave lacks; None without a slave."""
    with Connection(master.address) as connection:
        status = connection.ask(RequestCode.GET_BROKER_HA_STATUS).ok().content
    return min((int(each.diff) for each in status.connections), default=None)


def test_h01_a_slave_of_rocketmq_has_our_log_and_serves_it(
    tmp_path: Path, slave_version: str, ending: list[ServerProcess]
) -> None:
    master = started(tmp_path)
    ending.append(master)
    sent = [b"%d" % number for number in range(20)]
    with Connection(master.address) as connection:
        for body in sent[:10]:
            put(connection, QUEUE, Outgoing(body))
        slave = with_slave(master, slave_version, tmp_path)
        ending.append(slave)
        until(lambda: lag_of(master) == 0, "copied", [master, slave])
        for body in sent[10:]:
            put(connection, QUEUE, Outgoing(body, properties={"TAGS": "a", "KEYS": "k"}))
        put(connection, QUEUE, Outgoing(b"x" * 3_000_000))
    until(lambda: lag_of(master) == 0, "followed", [master, slave])
    if slave_version != V4:
        # RocketMQ 4.9 fetches topics from its master each 10 s, later versions each 60 s.
        has_topic(slave.address)
    with Connection(slave.address) as at_slave:
        until(lambda: pull(at_slave, QUEUE).code == ResponseCode.SUCCESS, "has topics", [slave])
        until(lambda: max_offset(at_slave, QUEUE) == len(sent) + 1, "dispatched", [slave])
        until(lambda: bodies(at_slave, QUEUE)[: len(sent)] == sent, "read", [slave])
    slave.stop()
    master.stop()
    ours = log_of(master.store)
    theirs = log_of(tmp_path / "slave" / "store")
    assert theirs[: len(ours)] == ours[: len(theirs)]


def test_h02_our_sync_master_waits_for_a_slave_of_rocketmq(
    tmp_path: Path, slave_version: str, ending: list[ServerProcess]
) -> None:
    master = started(tmp_path, "--broker-role", "SYNC_MASTER", "--slave-timeout-ms", "200000")
    ending.append(master)
    with Connection(master.address) as connection:
        alone = send(connection, QUEUE, Outgoing(b"alone"))
        assert alone.code == ResponseCode.SLAVE_NOT_AVAILABLE
        slave = with_slave(master, slave_version, tmp_path)
        ending.append(slave)
        until(lambda: lag_of(master) == 0, "copied", [master, slave])
        for number in range(20):
            send(connection, QUEUE, Outgoing(b"%d" % number)).ok()
        slave.kill()
        until(lambda: lag_of(master) is None, "away", [master])
        after = send(connection, QUEUE, Outgoing(b"after"))
        assert after.code == ResponseCode.SLAVE_NOT_AVAILABLE
        # It is stored and has its place.
        assert after.header.queue_offset == 21

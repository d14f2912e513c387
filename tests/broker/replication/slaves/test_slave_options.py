"""Options of a slave: the rules between them, for the command and for LocalBroker."""

from __future__ import annotations

import json
from typing import Any

import pytest
import typer

from rocketpy_broker import LocalBroker
from rocketpy_broker.cli.broker.network_options import replication
from rocketpy_broker.config import BrokerRole, Replication
from rocketpy_broker.embedded.local_broker import LocalBrokerError
from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.services.replication.options import replication_of
from tests.broker.replication.promotion.test_h04_promotion import until
from tests.support.broker.shell import ended

ASYNC, SYNC, SLAVE = BrokerRole.ASYNC_MASTER, BrokerRole.SYNC_MASTER, BrokerRole.SLAVE
MASTER = "127.0.0.1:10911"


def made(*, has_name_servers: bool = False, **options: Any) -> Replication:
    return replication_of(**options, has_name_servers=has_name_servers)


def test_h01_a_slave_has_the_id_1_unless_another_one_is_given() -> None:
    assert made(role=SLAVE, master=MASTER) == Replication(SLAVE, 1, MASTER)
    assert made(role=SLAVE, broker_id=16, master="[::1]:1") == Replication(SLAVE, 16, "[::1]:1")
    assert made(role=SLAVE, port=0, has_name_servers=True) == Replication(SLAVE, 1, None, 0)
    assert made(role=SYNC, port=0, in_sync_replicas=17) == Replication(SYNC, 0, None, 0, 17)
    assert made() == Replication()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"broker_id": 1}, "--broker-id is 1, but --broker-role is 'ASYNC_MASTER'; leave it out"),
        ({"role": SYNC, "port": 0, "master": MASTER}, "--master is '127.0.0.1:10911', but --brok"),
        ({"role": SYNC}, "--ha-port is None, accepted is a port"),
        ({"in_sync_replicas": 18}, "--in-sync-replicas is 18, accepted is 1 to 17"),
        ({"role": SLAVE}, "--master is None, accepted is the master's host:port, or use --name-s"),
        ({"role": SLAVE, "master": MASTER, "broker_id": 0}, "--broker-id is 0, accepted is 1 to"),
        ({"role": SLAVE, "master": MASTER, "broker_id": 17}, "--broker-id is 17, accepted is 1 to"),
        ({"role": SLAVE, "master": MASTER, "in_sync_replicas": 2}, "--in-sync-replicas is 2, but"),
        ({"role": SLAVE, "master": "10911"}, "--master is '10911', accepted is host:port"),
        ({"role": SLAVE, "master": ""}, "--master is '', accepted is host:port"),
        ({"role": SLAVE, "master": "host:0"}, "--master is 'host:0', accepted is host:port"),
        ({"role": SLAVE, "master": "a b:1"}, "--master is 'a b:1', accepted is host:port"),
    ],
)
def test_h01_a_wrong_option_is_refused_by_its_name(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterIllegalError) as refused:
        made(**options)
    assert words in str(refused.value)


def test_h01_the_command_names_the_option() -> None:
    with pytest.raises(typer.BadParameter) as refused:
        replication(SLAVE, None, "nowhere", None, None, (), 3_000, None)
    assert refused.value.param_hint == "--master"
    found = replication(SLAVE, 3, None, 0, None, ("127.0.0.1:9876",), 5, 6)
    assert found == Replication(SLAVE, 3, None, 0, slave_timeout_ms=5, bytes_per_second_max=6)


@pytest.mark.parametrize(
    "options", [{"broker_role": "MASTER"}, {"broker_role": "SLAVE"}, {"broker_id": 1}]
)
def test_h01_a_local_broker_checks_its_options_before_its_start(options: dict[str, Any]) -> None:
    with pytest.raises(ParameterIllegalError):
        LocalBroker(**options)


def test_h01_a_local_broker_keeps_its_port_for_slaves() -> None:
    with LocalBroker(ha_port=0) as broker:
        port = broker._ha_port
        assert port
        broker.restart()
        assert broker._ha_port == port


def status_of(broker: LocalBroker, *options: str) -> str:
    """Returns what `rocketpy broker status` prints of a broker."""
    done = ended("broker", "status", "--endpoint", broker.endpoint, *options)
    done.check_returncode()
    return done.stdout


def test_h01_h03_local_brokers_are_master_and_slave() -> None:
    with LocalBroker(ha_port=0) as master:
        master.create_topic("T", queues=1)
        master.send("T", "copied")
        with LocalBroker(
            broker_role="SLAVE", broker_id=2, master=master.remoting_endpoint, http_port=0
        ) as slave:
            until(lambda: [each.text for each in slave.messages("T")] == ["copied"])
            with pytest.raises(LocalBrokerError, match="slave: send to its master 127"):
                slave.send("T", "refused")
            # A slave is connected when it has compared its log with the master, a moment later.
            until(lambda: json.loads(status_of(slave, "--json"))["master"]["connected"])
            status = json.loads(status_of(slave, "--json"))
            assert (status["brokerRole"], status["brokerId"]) == ("SLAVE", 2)
            assert status["master"]["address"] == master.remoting_endpoint
            assert status["master"]["connected"]
            assert status["master"]["lagBytes"] == 0
            table = status_of(slave)
            assert f"address {master.remoting_endpoint}, connected yes" in table

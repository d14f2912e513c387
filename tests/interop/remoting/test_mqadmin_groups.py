"""Consumers, their progress and their resets by unmodified mqadmin of each version."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rocketpy_broker import LocalBroker
from tests.interop.cluster.java_clients import row
from tests.interop.remoting.clients import Consumer, Messaging, in_java, until, until_consumed
from tests.interop.remoting.conftest import Tool

pytestmark = in_java
BODIES = ["one", "two", "three"]
RESET = ("-g", "G", "-t", "T")


@pytest.fixture
def consumer(broker: LocalBroker, messaging: Messaging) -> Consumer:
    """Returns a live consumer of group G; it has consumed three messages of queue 1."""
    broker.create_topic("T", queues=2)
    messaging.producer("PG").send("T", BODIES, "ordered", orderKey=1)
    found = messaging.consumer("T", group="G")
    until_consumed([found], BODIES)
    return found


def progress(tool: Tool, queue_id: int = 1) -> Sequence[str]:
    """Returns the broker's offset, the group's, and their difference, in a queue of T."""
    shown = row(tool("consumerProgress", "-g", "G"), "T", "broker-a", str(queue_id))
    return [word for word in shown[3:] if word.isdecimal()][:3]


def test_clients_of_groups_are_shown(consumer: Consumer, messaging: Messaging, tool: Tool) -> None:
    version = f"V{messaging.version.replace('.', '_')}"
    shown = tool("consumerConnection", "-g", "G")
    assert f"@{consumer.name} " in shown
    assert row(shown, "T")[1:] == ["*"]
    assert "MessageModel: CLUSTERING" in shown
    assert "ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET" in shown
    (client,) = (line for line in shown.splitlines() if f"@{consumer.name} " in line)
    assert client.split()[-2:] == ["JAVA", version]
    until(lambda: version in tool("producerConnection", "-g", "PG", "-t", "T"))
    shown = tool("consumerStatus", "-g", "G")
    assert f"@{consumer.name} " in shown
    assert "Rebalance OK" in shown
    assert row(tool("consumerProgress"), "G")[1:4] == ["1", version, "PUSH"]
    shown = tool("getConsumerConfig", "-g", "G")
    assert row(shown, "retryMaxTimes")[-1] == "16"
    consumer.stop()
    for command in ("consumerConnection", "consumerStatus"):
        assert "not online" in tool(command, "-g", "G")
    assert "not exist" in tool("producerConnection", "-g", "none", "-t", "T")


def test_a_live_consumer_gets_messages_again_after_a_reset(
    consumer: Consumer, messaging: Messaging, tool: Tool
) -> None:
    shown = tool("resetOffsetByTime", *RESET, "-s", "0")
    assert row(shown, "broker-a", "1")[-1] == "0"
    until(lambda: sorted(consumer.bodies()) == sorted(2 * BODIES), consumer.bodies)
    shown = tool("skipAccumulatedMessage", *RESET)
    assert row(shown, "broker-a", "1")[-1] == "3"
    messaging.producer("others").send("T", ["four"], "ordered", orderKey=1)
    until_consumed([consumer], ["four"])
    # The client may consume the new one before it hears of the reset, and then again.
    assert sorted(each for each in consumer.bodies() if each != "four") == sorted(2 * BODIES)


def test_offsets_of_a_group_without_clients_move(
    broker: LocalBroker, consumer: Consumer, tool: Tool
) -> None:
    consumer.stop()
    assert progress(tool) == ["3", "3", "0"]
    tool("resetOffsetByTime", *RESET, "-s", "0")
    assert progress(tool) == ["3", "0", "3"]
    tool("resetOffsetByTime", *RESET, "-s", "now")
    assert progress(tool) == ["3", "3", "0"]
    tool("resetOffsetByTime", *RESET, "-s", "0")
    shown = tool("skipAccumulatedMessage", *RESET)
    assert row(shown, "broker-a", "1")[-1] == "3"
    assert progress(tool) == ["3", "3", "0"]
    clone = ("-s", "G", "-d", "H", "-t", "T", "-o", "false")
    assert "'H' does not exist" in tool("cloneGroupOffset", *clone)
    address = ("-b", broker.remoting_endpoint)
    tool("updateSubGroup", *address, "-g", "H")
    tool("cloneGroupOffset", *clone)
    shown = tool("brokerConsumeStats", *address)
    assert row(shown, "T", "H", "broker-a", "1")[4:7] == ["3", "3", "0"]


def test_a_message_is_consumed_by_a_named_client(
    consumer: Consumer, messaging: Messaging, tool: Tool
) -> None:
    (sent,) = messaging.producer("others").send("T", ["direct"], "ordered", orderKey=0)
    until_consumed([consumer], ["direct"])
    shown = tool("consumerConnection", "-g", "G")
    client_id = next(word for word in shown.split() if word.endswith(f"@{consumer.name}"))
    who = ("-g", "G", "-d", client_id)
    shown = tool("queryMsgByUniqueKey", "-t", "T", "-i", sent["msgId"], *who)
    until(lambda: consumer.bodies().count("direct") == 2, lambda: (shown, consumer.bodies()))

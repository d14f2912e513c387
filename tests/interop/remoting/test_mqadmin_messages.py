"""Messages, topics and routes by unmodified mqadmin of each version."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker
from tests.interop.cluster.java_clients import row
from tests.interop.remoting.clients import Messaging, in_java
from tests.interop.remoting.conftest import Tool
from tests.interop.rocketmq import V4

pytestmark = in_java
BODIES = ["one", "two", "three"]


@pytest.fixture
def sent(broker: LocalBroker, messaging: Messaging) -> list[dict[str, str]]:
    """Returns the results of three sends to queue 1 of the topic T."""
    broker.create_topic("T", queues=2)
    producer = messaging.producer()
    return producer.send("T", BODIES, "ordered", orderKey=1, keys="order-7", tags="red")


def field(shown: str, name: str) -> str:
    """Returns the value of a line `name: value`."""
    found = re.search(rf"^{name}: +(.*)$", shown, re.MULTILINE)
    assert found is not None, shown
    return found[1].strip("[]")


def body_of(shown: str) -> str:
    """Returns the body in the file that a command has written."""
    return Path(field(shown, "Message Body Path")).read_text()


def test_a_message_is_found_by_its_ids_and_its_offset(
    sent: list[dict[str, str]], tool: Tool, client: str
) -> None:
    one, two = sent[:2]
    # 4.9's command ends the process for an option that it does not have.
    topic = () if client == V4 else ("-t", "T")
    for shown, body, offset in (
        (tool("queryMsgById", *topic, "-i", one["offsetMsgId"]), "one", "0"),
        (tool("queryMsgByUniqueKey", "-t", "T", "-i", two["msgId"]), "two", "1"),
        (tool("queryMsgByOffset", "-t", "T", "-b", "broker-a", "-i", "1", "-o", "2"), "three", "2"),
    ):
        assert body_of(shown) == body
        assert field(shown, "Topic") == "T"
        assert field(shown, "Tags") == "red"
        assert field(shown, "Keys") == "order-7"
        assert (field(shown, "Queue ID"), field(shown, "Queue Offset")) == ("1", offset)


def test_messages_are_found_by_a_key(sent: list[dict[str, str]], tool: Tool) -> None:
    shown = tool("queryMsgByKey", "-t", "T", "-k", "order-7")
    for offset, each in enumerate(sent):
        assert row(shown, each["msgId"])[1:3] == ["1", str(offset)]
    assert sent[0]["msgId"] not in tool("queryMsgByKey", "-t", "T", "-k", "order-8")


@pytest.mark.usefixtures("sent")
def test_messages_of_a_topic_and_of_a_queue_are_printed(tool: Tool) -> None:
    queue = ("-t", "T", "-a", "broker-a", "-i", "1", "-p", "true", "-d", "true", "-f", "true")
    topic = tool("printMsg", "-t", "T", "-d", "true")
    assert (
        "minOffset=0, maxOffset=3, MessageQueue [topic=T, brokerName=broker-a, queueId=1]" in topic
    )
    assert (
        "minOffset=0, maxOffset=0, MessageQueue [topic=T, brokerName=broker-a, queueId=0]" in topic
    )
    assert re.findall(r"BODY: (\w+)", topic) == BODIES
    shown = tool("printMsgByQueue", *queue)
    assert re.findall(r"BODY: (\w+)", shown) == BODIES
    assert row(shown, "Tag:", "red")[-1] == "3"


@pytest.mark.usefixtures("sent")
def test_a_message_is_sent_and_consumed(tool: Tool) -> None:
    where = ("-t", "T", "-b", "broker-a", "-i", "0")
    shown = tool("sendMessage", *where, "-p", "by-tool", "-k", "k9", "-c", "blue")
    *_, status, msg_id = row(shown, "broker-a", "0")
    assert status == "SEND_OK"
    assert field(tool("queryMsgByUniqueKey", "-t", "T", "-i", msg_id), "Tags") == "blue"
    shown = tool("consumeMessage", *where, "-o", "0", "-c", "1")
    assert msg_id in shown
    assert re.findall(r"BODY: ([\w-]+)", shown) == ["by-tool"]
    shown = tool("consumeMessage", "-t", "T", "-c", "9")
    assert sorted(re.findall(r"BODY: ([\w-]+)", shown)) == sorted([*BODIES, "by-tool"])


def test_topics_and_their_routes_are_listed(broker: LocalBroker, tool: Tool) -> None:
    broker.create_topic("T", queues=2)
    route = tool("topicRoute", "-t", "T")
    assert f'0:"{broker.remoting_endpoint}"' in route
    for number in ('"readQueueNums":2', '"writeQueueNums":2', '"perm":6'):
        assert number in route
    assert {"T", "TBW102"} <= {*tool("topicList").split()}
    assert row(tool("topicList", "-c"), "DefaultCluster", "T")
    assert tool("topicClusterList", "-t", "T").split() == ["DefaultCluster"]
    shown = tool("allocateMQ", "-t", "T", "-i", "10.0.0.1,10.0.0.2")
    for address in ("10.0.0.1", "10.0.0.2"):
        queues = re.search(rf'"{address}":\[([^]]*)\]', shown)
        assert queues is not None, shown
        assert queues[1].count('"topic":"T"') == 1
    assert "No topic route info in name server" in tool("topicRoute", "-t", "none")


def test_permissions_and_orders_of_routes_change(broker: LocalBroker, tool: Tool) -> None:
    broker.create_topic("T", queues=2)
    for command, perm in (("wipeWritePerm", 4), ("addWritePerm", 6)):
        shown = tool(command, "-b", "broker-a")
        assert "write perm of broker[broker-a] in name server" in shown
        assert "OK, " in shown
        assert f'"perm":{perm}' in tool("topicRoute", "-t", "T")
    tool("updateOrderConf", "-t", "T", "-m", "put", "-v", "broker-a:2")
    shown = tool("updateOrderConf", "-t", "T", "-m", "get")
    assert "orderConf=[broker-a:2]" in shown
    tool("updateOrderConf", "-t", "T", "-m", "delete")
    assert "No config item" in tool("updateOrderConf", "-t", "T", "-m", "get")
    address = ("-b", broker.remoting_endpoint)
    shown = tool("updateTopicPerm", *address, "-t", "T", "-p", "4")
    assert f"update topic perm from 6 to 4 in {broker.remoting_endpoint} success" in shown
    assert '"perm":4' in tool("topicRoute", "-t", "T")


def test_cleaning_and_replication_are_answered(
    broker: LocalBroker, tool: Tool, client: str
) -> None:
    address = ("-b", broker.remoting_endpoint)
    for command in ("cleanUnusedTopic", "cleanExpiredCQ", "deleteExpiredCommitLog"):
        assert "success" in tool(command, *address)
    if client == V4:
        return  # It has no haStatus.
    shown = tool("haStatus", *address)
    assert row(shown, "#MasterAddr")[-1] == broker.remoting_endpoint
    assert row(shown, "#SlaveNum")[-1] == "0"


def test_commands_without_a_service_here_are_refused(broker: LocalBroker, tool: Tool) -> None:
    assert "request type 319 not supported" in tool("getNamesrvConfig")
    assert "request type 318 not supported" in tool("updateNamesrvConfig", "-k", "a", "-v", "b")

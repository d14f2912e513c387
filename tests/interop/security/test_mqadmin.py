"""RocketMQ's mqadmin with the keys in its file conf/tools.yml."""

from __future__ import annotations

import re

import pytest

from rocketpy_broker import LocalBroker
from tests.interop.security.conftest import (
    GROUP,
    REFUSED,
    SECRETS,
    TOPIC,
    WRONG,
    Signing,
    in_java,
    texts,
)

pytestmark = [in_java, pytest.mark.usefixtures("topic")]


def test_mqadmin_has_the_keys_of_its_file(broker: LocalBroker, java: Signing) -> None:
    address = ("-b", broker.remoting_endpoint)
    change = (*address, "-t", "created", "-r", "1", "-w", "1")
    shown = java.mqadmin("admin", SECRETS["admin"], "updateTopic", *change)
    assert "success" in shown, shown
    assert "created" in broker.topics()
    send = ("-t", TOPIC, "-b", "broker-a", "-i", "0", "-p", "signed")
    assert "SEND_OK" in java.mqadmin("writer", SECRETS["writer"], "sendMessage", *send)
    assert texts(broker) == ["signed"]
    read = ("-t", TOPIC, "-b", "broker-a", "-i", "0", "-o", "0", "-c", "1")
    shown = java.mqadmin("reader", SECRETS["reader"], "consumeMessage", *read, "-g", GROUP)
    assert re.findall(r"BODY: (\w+)", shown) == ["signed"]


def test_mqadmin_is_refused_with_wrong_keys_or_without_permission(
    broker: LocalBroker, java: Signing
) -> None:
    change = ("-b", broker.remoting_endpoint, "-t", "refused", "-r", "1", "-w", "1")
    for name, secret_key in (("admin", WRONG), ("writer", SECRETS["writer"])):
        assert REFUSED in java.mqadmin(name, secret_key, "updateTopic", *change)
    send = ("-t", TOPIC, "-b", "broker-a", "-i", "0", "-p", "refused")
    assert REFUSED in java.mqadmin("reader", SECRETS["reader"], "sendMessage", *send)
    assert "refused" not in broker.topics()
    assert texts(broker) == []

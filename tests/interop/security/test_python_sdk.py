"""RocketMQ's SDK for Python with its Credentials."""

from __future__ import annotations

import pytest

from rocketpy_broker import LocalBroker
from tests.interop.apache_v2.python_messages import PythonMessages
from tests.interop.drivers import RocketMQError
from tests.interop.security.conftest import GROUP, TOPIC, WRONG, keys, texts

pytestmark = pytest.mark.usefixtures("topic")


def test_the_sdk_sends_and_receives_with_its_credentials(
    broker: LocalBroker, python_messages: PythonMessages
) -> None:
    (sent,) = python_messages.send(broker, TOPIC, {"body": "signed"}, **keys("writer"))
    (received,) = python_messages.receive(broker, TOPIC, GROUP, **keys("reader"))
    assert (received["id"], received["body"]) == (sent, "signed")


def test_the_sdk_is_refused_with_wrong_credentials_or_without_permission(
    broker: LocalBroker, python_messages: PythonMessages
) -> None:
    # Without a route the SDK reports that it has none; the reason is in its log.
    for given in (keys("writer", WRONG), {}):
        with pytest.raises(RocketMQError, match=f"failed to fetch topic:{TOPIC} route"):
            python_messages.send(broker, TOPIC, {"body": "refused"}, **given)
    log = python_messages.log()
    assert "40100, the access key or the signature is not accepted" in log
    assert "40100, the broker has users, and the request names none" in log
    with pytest.raises(RocketMQError, match=r"UnauthorizedException.*reader.*PUB"):
        python_messages.send(broker, TOPIC, {"body": "refused"}, **keys("reader"))
    with pytest.raises(RocketMQError, match=r"UnauthorizedException.*writer.*SUB"):
        python_messages.receive(broker, TOPIC, GROUP, **keys("writer"))
    assert texts(broker) == []

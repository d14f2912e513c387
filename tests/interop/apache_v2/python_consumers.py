"""Consumers of RocketMQ's SDK for Python, in a process and an environment of their own.

Requests and answers are lines of JSON, as in `python_sdk.py`.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping
from typing import Any

from rocketmq.grpc_protocol import FilterType
from rocketmq.v5.client import ClientConfiguration, Credentials
from rocketmq.v5.consumer import ConsumeResult, MessageListener, PushConsumer, SimpleConsumer
from rocketmq.v5.model import FilterExpression, Message

Request = Mapping[str, Any]
# The SDK's deadline of a receive is 3 s after this wait; the broker accepts 5 s and more.
WAIT_SECONDS = 5


class Listener(MessageListener):  # type: ignore[misc]
    """A listener that keeps what it gets, and fails bodies as often as they say: `fail-2-a`."""

    def __init__(self) -> None:
        self.consumed: list[dict[str, Any]] = []
        self._failures: dict[str, int] = {}
        self._lock = threading.Lock()

    def consume(self, message: Message) -> ConsumeResult:
        body = message.body.decode()
        with self._lock:
            self.consumed.append(_parts(message))
            failed = self._failures.get(body, 0)
            self._failures[body] = failed + 1
        wanted = int(body.split("-")[1]) if body.startswith("fail-") else 0
        return ConsumeResult.FAILURE if failed < wanted else ConsumeResult.SUCCESS


class Program:
    """The consumers by name, and the requests to them."""

    def __init__(self) -> None:
        self._simple: dict[str, SimpleConsumer] = {}
        self._push: dict[str, tuple[PushConsumer, Listener]] = {}
        self._messages: dict[str, Message] = {}

    def answer(self, request: Request) -> object:
        """Returns the answer to a request."""
        return getattr(self, f"do_{request['do']}")(request)

    def do_simple(self, request: Request) -> object:
        consumer = SimpleConsumer(
            _configuration(request), request["group"], _subscriptions(request), WAIT_SECONDS
        )
        consumer.startup()
        self._simple[request["name"]] = consumer
        return {}

    def do_receive(self, request: Request) -> object:
        consumer = self._simple[request["name"]]
        messages = consumer.receive(request.get("count", 32), request.get("invisible", 15))
        self._messages.update({each.message_id: each for each in messages or []})
        return {"messages": [_parts(each) for each in messages or []]}

    def do_ack(self, request: Request) -> object:
        for message_id in request["ids"]:
            self._simple[request["name"]].ack(self._messages[message_id])
        return {}

    def do_change(self, request: Request) -> object:
        message = self._messages[request["id"]]
        self._simple[request["name"]].change_invisible_duration(message, request["seconds"])
        return {}

    def do_push(self, request: Request) -> object:
        listener = Listener()
        consumer = PushConsumer(
            _configuration(request), request["group"], listener, _subscriptions(request)
        )
        consumer.startup()
        self._push[request["name"]] = consumer, listener
        return {}

    def do_consumed(self, request: Request) -> object:
        return {"messages": list(self._push[request["name"]][1].consumed)}

    def do_stop(self, request: Request) -> object:
        name = request["name"]
        consumer = self._simple.pop(name) if name in self._simple else self._push.pop(name)[0]
        consumer.shutdown()
        return {}


def _configuration(request: Request) -> ClientConfiguration:
    keys = Credentials(request.get("accessKey"), request.get("secretKey"))
    return ClientConfiguration(request["endpoints"], keys, "", 30)


def _subscriptions(request: Request) -> dict[str, FilterExpression]:
    if request.get("sql"):
        return {request["topic"]: FilterExpression(request["sql"], FilterType.SQL)}
    return {request["topic"]: FilterExpression(request.get("tags", "*"))}


def _parts(message: Message) -> dict[str, Any]:
    return {
        "id": message.message_id,
        "body": message.body.decode(),
        "tag": message.tag,
        "keys": list(message.keys or ()),
        "group": message.message_group,
        "deliverAt": message.delivery_timestamp,
        "properties": dict(message.properties or {}),
        "attempt": message.delivery_attempt,
        "corrupted": message.corrupted,
    }


def main() -> None:
    """Answers requests until the input ends."""
    program, answers = Program(), sys.stdout
    # Prints of the SDK must not be taken for answers.
    sys.stdout = sys.stderr
    for line in sys.stdin:
        try:
            answer = program.answer(json.loads(line))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()

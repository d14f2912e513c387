"""Producers and consumers of RocketMQ's SDK for Python, in a process and an environment of its own.

Requests and answers are lines of JSON; `clients.py` is the other side, `java/SdkDriver.java` does
the same in Java. The SDK's generated modules clash with the ones of rocketpy, so this program
imports nothing of it.
"""

from __future__ import annotations

import base64
import json
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, ClassVar

from rocketmq.grpc_protocol import (
    FilterType,
    TransactionResolution,
    definition_pb2,
    service_pb2,
)
from rocketmq.v5.client import ClientConfiguration, Credentials
from rocketmq.v5.consumer import ConsumeResult, MessageListener, PushConsumer, SimpleConsumer
from rocketmq.v5.model import FilterExpression, Message
from rocketmq.v5.producer import Producer, Transaction, TransactionChecker

Request = Mapping[str, Any]
# A busy machine takes longer than the SDK's 3 seconds.
REQUEST_SECONDS = 30
AWAIT_SECONDS = 5


class Checker(TransactionChecker):  # type: ignore[misc]
    """A checker of transactions that keeps what it was asked, and answers by the body."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def check(self, message: Message) -> int:
        self.seen.append(_parts(message))
        names = {"commit": TransactionResolution.COMMIT, "roll": TransactionResolution.ROLLBACK}
        return int(names.get(message.body.decode().split("-")[0], 0))


class Listener(MessageListener):  # type: ignore[misc]
    """A listener that keeps what it gets.

    All listeners together fail a body as often as it says: `fail-2-a`.
    """

    _attempts: ClassVar[Counter[str]] = Counter()
    _lock = threading.Lock()

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def consume(self, message: Message) -> ConsumeResult:
        body = message.body.decode()
        wanted = int(body.split("-")[1]) if body.startswith("fail-") else 0
        with self._lock:
            self.seen.append(_parts(message))
            self._attempts[body] += 1
            is_failed = self._attempts[body] <= wanted
        return ConsumeResult.FAILURE if is_failed else ConsumeResult.SUCCESS


class Program:
    """The clients by name, and the requests to them."""

    def __init__(self) -> None:
        self._clients: dict[str, Any] = {}
        self._listeners: dict[str, Checker | Listener] = {}
        self._transactions: dict[str, Transaction] = {}
        self._received: dict[str, Message] = {}

    def answer(self, request: Request) -> object:
        """Returns the answer to a request."""
        return getattr(self, f"do_{request['do']}")(request)

    def do_producer(self, request: Request) -> object:
        checker = Checker()
        topics = tuple(request["topics"])
        producer = Producer(_configuration(request), topics, checker, request["tls"])
        return self._start(request, producer, checker)

    def do_send(self, request: Request) -> object:
        producer = self._clients[request["name"]]
        messages = [_message(each) for each in request["messages"]]
        if request["mode"] == "async":
            futures: list[Future[Any]] = [producer.send_async(each) for each in messages]
            receipts = [each.result() for each in futures]
        else:
            receipts = [producer.send(each) for each in messages]
        return {"receipts": [_receipt(each) for each in receipts]}

    def do_transaction(self, request: Request) -> object:
        producer = self._clients[request["name"]]
        transaction = producer.begin_transaction()
        receipt = producer.send(_message(request["message"]), transaction)
        self._transactions[receipt.message_id] = transaction
        return {"receipts": [_receipt(receipt)]}

    def do_end(self, request: Request) -> object:
        transaction = self._transactions[request["messageId"]]
        if request["commits"]:
            transaction.commit()
        else:
            transaction.rollback()
        return {}

    def do_recall(self, request: Request) -> object:
        producer = self._clients[request["name"]]
        return {"messageId": producer.recall_message(request["topic"], request["handle"])}

    def do_simple(self, request: Request) -> object:
        consumer = SimpleConsumer(
            _configuration(request),
            request["group"],
            _subscription(request),
            AWAIT_SECONDS,
            tls_enable=request["tls"],
        )
        return self._start(request, consumer)

    def do_receive(self, request: Request) -> object:
        consumer = self._clients[request["name"]]
        messages = consumer.receive(request["count"], request["invisible"]) or []
        self._received.update({each.message_id: each for each in messages})
        return {"messages": [_parts(each) for each in messages]}

    def do_ack(self, request: Request) -> object:
        self._clients[request["name"]].ack(self._received[request["id"]])
        return {}

    def do_change(self, request: Request) -> object:
        message = self._received[request["id"]]
        self._clients[request["name"]].change_invisible_duration(message, request["seconds"])
        return {}

    def do_push(self, request: Request) -> object:
        listener = Listener()
        consumer = PushConsumer(
            _configuration(request),
            request["group"],
            listener,
            _subscription(request),
            tls_enable=request["tls"],
        )
        return self._start(request, consumer, listener)

    def do_seen(self, request: Request) -> object:
        return {"messages": list(self._listeners[request["name"]].seen)}

    def do_stop(self, request: Request) -> object:
        self._clients.pop(request["name"]).shutdown()
        return {}

    def do_descriptors(self, _request: Request) -> object:
        """Returns the files of the SDK's interface, encoded."""
        files = (definition_pb2, service_pb2)
        return {
            "files": [
                base64.b64encode(each.DESCRIPTOR.serialized_pb).decode("ascii") for each in files
            ]
        }

    def _start(
        self, request: Request, client: Any, listener: Checker | Listener | None = None
    ) -> object:
        client.startup()
        self._clients[request["name"]] = client
        if listener is not None:
            self._listeners[request["name"]] = listener
        return {}


def _configuration(request: Request) -> ClientConfiguration:
    keys = Credentials(request["accessKey"], request["secretKey"])
    return ClientConfiguration(request["endpoints"], keys, request["namespace"], REQUEST_SECONDS)


def _subscription(request: Request) -> dict[str, FilterExpression]:
    kind = FilterType.SQL if request["sql"] else FilterType.TAG
    return {request["topic"]: FilterExpression(request["expression"], kind)}


def _message(parts: Mapping[str, Any]) -> Message:
    message = Message()
    message.topic, message.body = parts["topic"], parts["body"].encode()
    if "tag" in parts:
        message.tag = parts["tag"]
    if "group" in parts:
        message.message_group = parts["group"]
    if "deliverAt" in parts:
        # The SDK takes seconds.
        message.delivery_timestamp = -(-parts["deliverAt"] // 1_000)
    for key in parts.get("keys", ()):
        message.keys = key
    for key, value in parts.get("properties", {}).items():
        message.add_property(key, value)
    return message


def _receipt(receipt: Any) -> dict[str, Any]:
    return {"messageId": receipt.message_id, "recallHandle": receipt.recall_handle}


def _parts(message: Message) -> dict[str, Any]:
    assert not message.corrupted
    return {
        "id": message.message_id,
        "body": message.body.decode(),
        "tag": message.tag,
        "keys": list(message.keys or ()),
        "group": message.message_group,
        "deliver_at": message.delivery_timestamp,
        "properties": dict(message.properties or {}),
        "attempt": message.delivery_attempt,
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

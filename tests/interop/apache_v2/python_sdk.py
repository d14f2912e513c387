"""Producers of RocketMQ's SDK for Python, in a process and an environment of their own.

Requests and answers are lines of JSON; `drivers.py` is the other side. The SDK's generated modules
clash with the ones of rocketpy, so this program imports nothing of it.
"""

from __future__ import annotations

import base64
import json
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from rocketmq.grpc_protocol import TransactionResolution, definition_pb2, service_pb2
from rocketmq.v5.client import ClientConfiguration, Credentials
from rocketmq.v5.model import Message
from rocketmq.v5.producer import Producer, Transaction, TransactionChecker

Request = Mapping[str, Any]


class Checker(TransactionChecker):  # type: ignore[misc]
    """A checker of transactions that keeps what it was asked, and answers by the body."""

    def __init__(self) -> None:
        self.checked: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def check(self, message: Message) -> int:
        body = message.body.decode()
        with self._lock:
            self.checked.append(
                {
                    "body": body,
                    "messageId": message.message_id,
                    "corrupted": message.corrupted,
                    "properties": message.properties,
                }
            )
        names = {"commit": TransactionResolution.COMMIT, "roll": TransactionResolution.ROLLBACK}
        return int(names.get(body.split("-")[0], 0))


class Program:
    """The producers by name, and the requests to them."""

    def __init__(self) -> None:
        self._producers: dict[str, Producer] = {}
        self._checkers: dict[str, Checker] = {}
        self._transactions: dict[str, Transaction] = {}

    def answer(self, request: Request) -> object:
        """Returns the answer to a request."""
        return getattr(self, f"do_{request['do']}")(request)

    def do_producer(self, request: Request) -> object:
        keys = Credentials(request.get("accessKey"), request.get("secretKey"))
        configuration = ClientConfiguration(
            request["endpoints"], keys, request.get("namespace", ""), 30
        )
        name, checker = request["name"], Checker()
        producer = Producer(configuration, tuple(request["topics"]), checker)
        producer.startup()
        self._producers[name], self._checkers[name] = producer, checker
        return {}

    def do_send(self, request: Request) -> object:
        producer = self._producers[request["name"]]
        messages = [_message(each) for each in request["messages"]]
        if request.get("mode") == "async":
            futures: list[Future[Any]] = [producer.send_async(each) for each in messages]
            receipts = [each.result(60) for each in futures]
        else:
            receipts = [producer.send(each) for each in messages]
        return {"receipts": [_receipt(each) for each in receipts]}

    def do_transaction(self, request: Request) -> object:
        producer = self._producers[request["name"]]
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

    def do_checked(self, request: Request) -> object:
        return {"checked": list(self._checkers[request["name"]].checked)}

    def do_recall(self, request: Request) -> object:
        producer = self._producers[request["name"]]
        return {"messageId": producer.recall_message(request["topic"], request["handle"])}

    def do_stop(self, request: Request) -> object:
        self._producers.pop(request["name"]).shutdown()
        return {}

    def do_descriptors(self, _request: Request) -> object:
        """Returns the files of the SDK's interface, encoded."""
        files = (definition_pb2, service_pb2)
        return {
            "files": [
                base64.b64encode(each.DESCRIPTOR.serialized_pb).decode("ascii") for each in files
            ]
        }


def _message(parts: Mapping[str, Any]) -> Message:
    message = Message()
    message.topic, message.body = parts["topic"], parts["body"].encode()
    for name in ("tag", "message_group", "priority"):
        if name in parts:
            setattr(message, name, parts[name])
    for key in parts.get("keys", ()):
        message.keys = key
    for key, value in parts.get("properties", {}).items():
        message.add_property(key, value)
    if "delay_seconds" in parts:
        message.delivery_timestamp = int(time.time()) + parts["delay_seconds"]
    if "deliverAt" in parts:
        # The SDK takes seconds.
        message.delivery_timestamp = parts["deliverAt"] // 1_000
    return message


def _receipt(receipt: Any) -> dict[str, Any]:
    return {
        "messageId": receipt.message_id,
        "transactionId": receipt.transaction_id,
        "offset": receipt.offset,
        "recallHandle": receipt.recall_handle,
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

"""Rocketpy's own client in a process of its own, with the requests of the SDKs' programs.

It has a counterpart of what a producer sends, of transactions without checks, and of a consumer
that acknowledges with its next receive. Requests and answers are as in `python_sdk.py`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.messages import transactions
from rocketpy_broker.client.messages.group_reader import GroupReader
from rocketpy_broker.client.messages.model import Message, OutgoingMessage
from rocketpy_broker.client.messages.sender import ANY_QUEUE, MessageSender
from rocketpy_broker.client.messages.transactions import Transaction
from rocketpy_broker.runtime.time_format import EPOCH
from rocketpy_proto.tls import TlsConfig

PRODUCERS = "producers"


class Program:
    """The connections by name, and the requests to them."""

    def __init__(self) -> None:
        self._connections: dict[str, BrokerConnection] = {}
        self._readers: dict[str, GroupReader] = {}
        self._transactions: dict[str, Transaction] = {}

    def answer(self, request: Mapping[str, Any]) -> object:
        """Returns the answer to a request."""
        return getattr(self, f"do_{request['do']}")(request)

    def do_producer(self, request: Mapping[str, Any]) -> object:
        self._connect(request)
        return {}

    def do_send(self, request: Mapping[str, Any]) -> object:
        connection = self._connections[request["name"]]
        receipts = []
        for message in request["messages"]:
            sender = MessageSender(connection, message["topic"], ANY_QUEUE)
            (sent,) = sender.send([_message(message)])
            receipts.append({"messageId": sent.msg_id, "recallHandle": None})
        return {"receipts": receipts}

    def do_transaction(self, request: Mapping[str, Any]) -> object:
        connection, message = self._connections[request["name"]], request["message"]
        begun = transactions.prepare(connection, message["topic"], PRODUCERS, _message(message))
        self._transactions[begun.transaction_id] = begun
        return {"receipts": [{"messageId": begun.transaction_id, "recallHandle": None}]}

    def do_end(self, request: Mapping[str, Any]) -> object:
        transaction = self._transactions[request["messageId"]]
        connection = self._connections[request["name"]]
        transactions.end(connection, transaction, commit=request["commits"])
        return {}

    def do_simple(self, request: Mapping[str, Any]) -> object:
        connection = self._connect(request)
        reader = GroupReader(connection, request["topic"], request["group"])
        self._readers[request["name"]] = reader
        return {}

    def do_receive(self, request: Mapping[str, Any]) -> object:
        messages = self._readers[request["name"]].messages(request["count"])
        return {"messages": [_parts(each) for each in messages]}

    def do_stop(self, request: Mapping[str, Any]) -> object:
        self._connections.pop(request["name"]).close()
        return {}

    def _connect(self, request: Mapping[str, Any]) -> BrokerConnection:
        keys = request["accessKey"] or None, request["secretKey"] or None
        ca = Path(os.environ["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"]) if request["tls"] else None
        tls = None if ca is None else TlsConfig.of(ca, None, None)
        connection = BrokerConnection(request["endpoints"], *keys, tls=tls)
        self._connections[request["name"]] = connection
        return connection


def _message(parts: Mapping[str, Any]) -> OutgoingMessage:
    deliver_ms = parts.get("deliverAt")
    return OutgoingMessage(
        parts["body"].encode(),
        parts.get("tag"),
        tuple(parts.get("keys", ())),
        parts.get("properties", {}),
        deliver_at=None if deliver_ms is None else EPOCH + timedelta(milliseconds=deliver_ms),
    )


def _parts(message: Message) -> dict[str, Any]:
    return {
        "id": message.msg_id,
        "body": message.text,
        "tag": message.tags,
        "keys": list(message.keys),
        "group": None,
        "properties": dict(message.properties),
        "attempt": message.reconsume_times + 1,
    }


def main() -> None:
    """Answers requests until the input ends."""
    program = Program()
    for line in sys.stdin:
        try:
            answer = program.answer(json.loads(line))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

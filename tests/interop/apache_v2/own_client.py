"""Rocketpy's own client in a process of its own, with the requests of the SDKs' programs.

It has a counterpart of what a producer does, and of a consumer that acknowledges with its next
receive. As a push consumer it reads the topic and its retries, and sends failed messages back.
Requests and answers are as in `python_sdk.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from rocketpy_broker.client import groups
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.errors import ClientError, RefusedError
from rocketpy_broker.client.messages import recall, transactions
from rocketpy_broker.client.messages.group_reader import GroupReader
from rocketpy_broker.client.messages.model import Message, OutgoingMessage
from rocketpy_broker.client.messages.retries import send_back
from rocketpy_broker.client.messages.sender import ANY_QUEUE, MessageSender
from rocketpy_broker.client.messages.transactions import Transaction
from rocketpy_broker.runtime.time_format import EPOCH
from rocketpy_proto.record import decode_record
from rocketpy_proto.record.properties import SHARDING_KEY
from rocketpy_proto.rocketpy.v1 import groups_pb2
from rocketpy_proto.tls import TlsConfig

PRODUCERS = "producers"
PAUSE_SECONDS = 0.05
# A second: the shortest delay of a message that is sent back.
DELAY_LEVEL = 1


class Checker:
    """A member of the producer group that ends checked transactions as their bodies say.

    `seen` has their messages. A thread waits for the checks until the broker ends.
    """

    def __init__(self, connection: BrokerConnection) -> None:
        self.seen: list[dict[str, Any]] = []
        self._connection = connection
        self._is_ready = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()
        self._is_ready.wait()

    def _run(self) -> None:
        client_id = f"checker-{os.getpid()}-{id(self)}"
        with (
            contextlib.suppress(ClientError),
            groups.listening(self._connection, client_id) as notices,
        ):
            groups.heartbeat(self._connection, client_id, producer_groups=[PRODUCERS])
            self._is_ready.set()
            for notice in notices:
                self._check(notice.check_transaction)

    def _check(self, check: groups_pb2.CheckTransaction) -> None:
        message = Message.of(decode_record(check.record, 0).record)
        self.seen.append(_parts(message))
        transaction = transactions.Transaction(
            check.transaction_id, check.producer_group, check.commit_log_offset, check.queue_offset
        )
        commits = {"commit": True, "roll": False}.get(message.text.split("-")[0])
        if commits is not None:
            transactions.end(self._connection, transaction, commit=commits, from_check=True)


class Listener:
    """A consumer that reads all the time, and sends back `fail-2-a` twice.

    `seen` has its messages. A thread reads until the process ends.
    """

    def __init__(self, connection: BrokerConnection, topic: str, group: str) -> None:
        self.seen: list[dict[str, Any]] = []
        self._connection = connection
        self._group = group
        self._attempts: Counter[str] = Counter()
        topics = topic, f"%RETRY%{group}"
        self._readers = [GroupReader(connection, each, group) for each in topics]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            for reader in self._readers:
                # The topic of retries comes with the first one.
                with contextlib.suppress(RefusedError):
                    for message in reader.messages():
                        self._consume(message)
            time.sleep(PAUSE_SECONDS)

    def _consume(self, message: Message) -> None:
        self.seen.append(_parts(message))
        wanted = int(message.text.split("-")[1]) if message.text.startswith("fail-") else 0
        self._attempts[message.text] += 1
        if self._attempts[message.text] <= wanted:
            send_back(self._connection, self._group, message.offset_msg_id, DELAY_LEVEL)


class Program:
    """The connections by name, and the requests to them."""

    def __init__(self) -> None:
        self._connections: dict[str, BrokerConnection] = {}
        self._readers: dict[str, GroupReader] = {}
        self._transactions: dict[str, Transaction] = {}
        self._seers: dict[str, Checker | Listener] = {}

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
            handle, due_ms = None, message.get("deliverAt")
            if due_ms is not None:
                handle = recall.recall_handle(connection, message["topic"], due_ms, sent.msg_id)
            receipts.append({"messageId": sent.msg_id, "recallHandle": handle})
        return {"receipts": receipts}

    def do_transaction(self, request: Mapping[str, Any]) -> object:
        connection, message = self._connections[request["name"]], request["message"]
        if request["name"] not in self._seers:
            self._seers[request["name"]] = Checker(connection)
        begun = transactions.prepare(connection, message["topic"], PRODUCERS, _message(message))
        self._transactions[begun.transaction_id] = begun
        return {"receipts": [{"messageId": begun.transaction_id, "recallHandle": None}]}

    def do_end(self, request: Mapping[str, Any]) -> object:
        transaction = self._transactions[request["messageId"]]
        connection = self._connections[request["name"]]
        transactions.end(connection, transaction, commit=request["commits"])
        return {}

    def do_recall(self, request: Mapping[str, Any]) -> object:
        connection = self._connections[request["name"]]
        found = recall.recall_message(connection, request["topic"], request["handle"])
        return {"messageId": found}

    def do_simple(self, request: Mapping[str, Any]) -> object:
        connection = self._connect(request)
        reader = GroupReader(connection, request["topic"], request["group"])
        self._readers[request["name"]] = reader
        return {}

    def do_receive(self, request: Mapping[str, Any]) -> object:
        messages = self._readers[request["name"]].messages(request["count"])
        return {"messages": [_parts(each) for each in messages]}

    def do_push(self, request: Mapping[str, Any]) -> object:
        connection = self._connect(request)
        listener = Listener(connection, request["topic"], request["group"])
        self._seers[request["name"]] = listener
        return {}

    def do_seen(self, request: Mapping[str, Any]) -> object:
        return {"messages": list(self._seers[request["name"]].seen)}

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
    group = {SHARDING_KEY: parts["group"]} if "group" in parts else {}
    return OutgoingMessage(
        parts["body"].encode(),
        parts.get("tag"),
        tuple(parts.get("keys", ())),
        {**parts.get("properties", {}), **group},
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

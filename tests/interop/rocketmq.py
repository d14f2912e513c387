"""RocketMQ's own store in a separate process, driven by the tests.

`make interop` fetches RocketMQ's jars and compiles `java/` into `.interop/`; nothing is fetched
here. Requests and answers are lines of JSON, see `java/StoreDriver.java`.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.values import QueueKey
from tests.interop.drivers import Driver

TOP = Path(__file__).parents[2]
# The newest completely available version, and the last of two older lines; as in the Makefile.
V5, V5_3, V4 = VERSIONS = ("5.5.0", "5.3.3", "4.9.7")
# For clients: there are two kinds of requests to brokers; 5.3's are like the newest version's.
ENDS = (V5, V4)
JAVA_OPTIONS = (
    *("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    # RocketMQ unmaps its files through the JDK's internals.
    *("--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"),
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
)
# A broker stores each end of a transaction at once. With the defaults of 5.x the thread that
# stores them uses a whole core from 3 s after the first transaction to the broker's end
# (TransactionalMessageServiceImpl.batchSendOpMessage takes the past as its next time).
ENDS_STORED_AT_ONCE = {"transactionOpMsgMaxSize": 1, "transactionOpBatchInterval": 3_600_000}


def classes_of(version: str) -> Path:
    """Returns the folder of the drivers compiled for a version."""
    return TOP / ".interop" / version / "classes"


def java_program() -> str:
    """Returns the path of JAVA_HOME's Java, or the name that the path finds."""
    home = os.environ.get("JAVA_HOME")
    return "java" if home is None else str(Path(home, "bin", "java"))


def class_path_of(version: str) -> str:
    """Returns the class path: the drivers and a version's jars."""
    return f"{classes_of(version)}:{classes_of(version).with_name('lib')}/*"


def home_options(folder: Path) -> list[str]:
    """Returns the options by which a JVM keeps logs and native libraries in a folder."""
    return [f"-Duser.home={folder}", f"-Djava.io.tmpdir={folder}"]


@dataclass(frozen=True)
class Message:
    """A producer's message: a body, and properties with TAGS and KEYS among them."""

    body: bytes
    properties: Mapping[str, str] = field(default_factory=dict)


class RocketMQStore(Driver):
    """A Java process that holds one message store; its output goes to `log`."""

    def __init__(
        self, log: Path, home: Path, version: str = V5, properties: Sequence[str] = ()
    ) -> None:
        """Takes in properties of the virtual machine, such as `tls.enable=true`."""
        options = (*JAVA_OPTIONS, "-cp", class_path_of(version))
        more = [f"-D{each}" for each in properties]
        command = [java_program(), *home_options(home), *more, *options, "StoreDriver"]
        # Some of mqadmin's commands write files.
        super().__init__(command, log, folder=home)

    def open(
        self,
        folder: Path,
        segment_bytes: int,
        queue_file_bytes: int,
        flush: FlushDiskType,
        settings: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        """Loads, recovers and starts a store. `settings` are fields of a MessageStoreConfig."""
        sizes = {"segmentBytes": segment_bytes, "queueFileBytes": queue_file_bytes}
        told = {"flushDiskType": flush.value, "settings": {**settings}}
        self.ask("open", folder=str(folder), **told, **sizes)

    def put(self, queue: QueueKey, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """Puts one by one; each answer has status, queueOffset and physicalOffset."""
        request = {**_queue(queue), "messages": [_message(one) for one in messages]}
        answers: list[dict[str, Any]] = self.ask("put", **request)["results"]
        return answers

    def put_batch(self, queue: QueueKey, messages: Sequence[Message]) -> dict[str, Any]:
        """Puts as one batch; returns the answer for its first message."""
        request = {**_queue(queue), "messages": [_message(one) for one in messages]}
        answer: dict[str, Any] = self.ask("putBatch", **request)["results"][0]
        return answer

    def dump(self, queue: QueueKey) -> list[dict[str, Any]]:
        """Returns every record of a queue, by queue offset, with its body's bytes."""
        return _records(self.ask("dump", dispatched=True, **_queue(queue)))

    def query(self, topic: str, key: str) -> list[dict[str, Any]]:
        """Returns the records of a topic that the index finds for a key."""
        return _records(self.ask("query", dispatched=True, topic=topic, key=key))

    def query_by_tag(self, topic: str, tag: str) -> list[dict[str, Any]]:
        """Returns the records of a topic that the index finds for a tag."""
        return _records(self.ask("queryByTag", dispatched=True, topic=topic, tag=tag))

    def range(self, queue: QueueKey) -> dict[str, int]:
        """Returns `min` and `max` of the queue in units, logBegin and logEnd in bytes."""
        return self.ask("range", dispatched=True, **_queue(queue))

    def offset_by_time(self, queue: QueueKey, timestamp_ms: int) -> int:
        """Returns the first queue offset stored at that time or later."""
        request = {**_queue(queue), "timestamp": timestamp_ms}
        return int(self.ask("offsetByTime", dispatched=True, **request)["offset"])

    def stop(self) -> None:
        """Stops the store cleanly, and the process."""
        self.ask("stop")
        self.end()


def _queue(queue: QueueKey) -> dict[str, object]:
    return {"topic": queue.topic, "queueId": queue.queue_id}


def _message(message: Message) -> dict[str, object]:
    body = base64.b64encode(message.body).decode("ascii")
    return {"body": body, "properties": dict(message.properties)}


def _records(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{**record, "body": base64.b64decode(record["body"])} for record in answer["records"]]

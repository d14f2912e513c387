"""LocalBroker: a real broker in a process of its own, for tests, notebooks and demos.

The store lies in the given directory, or in a temporary one that goes with the broker. `kill`
leaves the directory as a crash does; `restart` recovers it.
"""

from __future__ import annotations

import atexit
import selectors
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType

import grpc

from rocketpy_broker.cli.broker_command import READY_PREFIX
from rocketpy_broker.errors import BrokerError
from rocketpy_broker.services.topic_config import READ_WRITE
from rocketpy_broker.store.flush import FlushDiskType
from rocketpy_proto.rocketpy.v1 import admin_pb2, admin_pb2_grpc, common_pb2

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 15.0
REQUEST_SECONDS_MAX = 10.0
TEST_SEGMENT_BYTES = 64 << 20


class LocalBrokerError(BrokerError):
    """The broker process did not start, did not stop, or refused an order."""


class LocalBroker:
    """A broker on a free port of 127.0.0.1.

    >>> with LocalBroker() as broker:
    ...     broker.create_topic("orders", queues=4)
    ...     spark.readStream.format("rocketpy").option("endpoints", broker.endpoint)
    """

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        port: int = 0,
        flush: FlushDiskType | None = None,
        commit_log_segment_bytes: int = TEST_SEGMENT_BYTES,
    ) -> None:
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if data is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="rocketpy-")
            data = self._temporary.name
            flush = flush or FlushDiskType.ASYNC_FLUSH
        self.data = Path(data)
        self._port = port
        self._flush = flush or FlushDiskType.SYNC_FLUSH
        self._commit_log_segment_bytes = commit_log_segment_bytes
        self._process: subprocess.Popen[str] | None = None

    @property
    def endpoint(self) -> str:
        """host:port; stays the same over restarts."""
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """Process id of the running broker."""
        return self._running().pid

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise LocalBrokerError("the broker is not running; call start() first")
        return self._process

    def start(self) -> LocalBroker:
        """Start the process and wait until it serves. Raises LocalBrokerError with its words."""
        command = [sys.executable, "-m", "rocketpy_broker", "broker"]
        command += ["--data", str(self.data), "--port", str(self._port)]
        command += ["--flush", self._flush.value]
        command += ["--commit-log-segment-bytes", str(self._commit_log_segment_bytes)]
        # Tests and notebooks run on machines whose disks are none of this broker's business.
        command += ["--disk-full-ratio", "1"]
        # The pipe to its input ends with this process, and the broker with the pipe.
        command += ["--stop-at-eof"]
        with self._log_path().open("a", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        atexit.register(self.kill)
        line = self._first_line(self._process)
        if not line.startswith(READY_PREFIX):
            self.kill()
            words = self.log_text().strip()
            self._clean_up()
            raise LocalBrokerError(f"the broker did not start: {words}")
        self._port = int(line.removeprefix(READY_PREFIX).split(" ")[0].rpartition(":")[2])
        return self

    def _log_path(self) -> Path:
        self.data.mkdir(parents=True, exist_ok=True)
        return self.data / "broker.log"

    def log_text(self) -> str:
        """What the broker has logged so far."""
        return self._log_path().read_text(encoding="utf-8")

    @staticmethod
    def _first_line(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            return process.stdout.readline() if selector.select(START_SECONDS_MAX) else ""

    def stop(self) -> None:
        """Stop cleanly, as SIGTERM does. Raises LocalBrokerError if that takes too long."""
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise LocalBrokerError(
                f"the broker did not stop within {STOP_SECONDS_MAX} s and was killed"
            ) from error
        self._ended(process)

    def kill(self) -> None:
        """End the process at once, as a crash does."""
        process = self._process
        if process is not None:
            process.kill()
            process.wait()
            self._ended(process)

    def _ended(self, process: subprocess.Popen[str]) -> None:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        self._process = None
        atexit.unregister(self.kill)

    def restart(self) -> None:
        """Stop if running, and start again on the same port and directory."""
        self.stop()
        self.start()

    def create_topic(self, topic: str, queues: int = 8) -> None:
        """Create `topic`. Raises LocalBrokerError if there is one, or the name is illegal."""
        config = admin_pb2.TopicConfig(
            topic=topic, read_queue_nums=queues, write_queue_nums=queues, perm=int(READ_WRITE)
        )
        request = admin_pb2.UpdateTopicRequest(config=config, create_only=True)
        with grpc.insecure_channel(self.endpoint) as channel:
            stub = admin_pb2_grpc.AdminStub(channel)
            _check(stub.UpdateTopic(request, timeout=REQUEST_SECONDS_MAX).status)

    def delete_topic(self, topic: str) -> None:
        """Delete `topic` with all its messages. Raises LocalBrokerError."""
        with grpc.insecure_channel(self.endpoint) as channel:
            stub = admin_pb2_grpc.AdminStub(channel)
            request = admin_pb2.DeleteTopicRequest(topic=topic)
            _check(stub.DeleteTopic(request, timeout=REQUEST_SECONDS_MAX).status)

    def __enter__(self) -> LocalBroker:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        finally:
            self._clean_up()

    def _clean_up(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()


def _check(status: common_pb2.Status) -> None:
    if status.code:
        raise LocalBrokerError(status.remark)

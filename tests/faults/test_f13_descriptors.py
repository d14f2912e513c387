"""A broker with few descriptors: it refuses some calls, and recovers after that."""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import broker_pb2_grpc
from tests.faults.histories.clients import append_request, pull
from tests.faults.histories.history import FINAL, History, Outcome, body_of
from tests.support.time_limits import WAIT_SECONDS_MAX

SEGMENT_BYTES = 64 << 10
BODY_BYTES = 8 << 10
DESCRIPTORS_MAX = 64
CONNECTIONS = 2 * DESCRIPTORS_MAX
QUEUE = QueueKey("T", 0)
SECONDS_MAX = float(WAIT_SECONDS_MAX)


def descriptors_of(pid: int) -> int:
    """Returns the number of open descriptors of a process."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@contextlib.contextmanager
def with_few_descriptors(folder: Path) -> Iterator[LocalBroker]:
    """Yields a broker that may have DESCRIPTORS_MAX descriptors open."""
    broker = LocalBroker(
        folder, flush=FlushDiskType.ASYNC_FLUSH, commit_log_segment_bytes=SEGMENT_BYTES
    )
    try:
        broker.start()
        broker.create_topic(QUEUE.topic, 1)
        limit = (DESCRIPTORS_MAX, DESCRIPTORS_MAX)
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, limit)
        yield broker
    finally:
        broker.kill()


class Client:
    """A connection that sends to QUEUE, one message a request."""

    def __init__(self, channel: grpc.Channel, history: History) -> None:
        self._stub = broker_pb2_grpc.BrokerStub(channel)
        self._history = history
        self._count = 0

    def send(self) -> int:
        """Sends; returns the response code. Raises grpc.RpcError."""
        name = f"m{self._count}"
        self._count += 1
        body = body_of(name, BODY_BYTES)
        self._history.begin("client", QUEUE, [body])
        request = append_request(QUEUE, [body])
        [response] = self._stub.Append(iter([request]), timeout=SECONDS_MAX)
        if response.status.code == ResponseCode.SUCCESS:
            self._history.acked([name], QUEUE.queue_id, response.queue_offset)
        else:
            self._history.refused([name])
        return int(response.status.code)


def until_refused(client: Client) -> None:
    """Sends until the log cannot roll to a new file."""
    for _ in range(DESCRIPTORS_MAX * SEGMENT_BYTES // BODY_BYTES):
        if (code := client.send()) != ResponseCode.SUCCESS:
            assert code == ResponseCode.SERVICE_NOT_AVAILABLE
            return
    pytest.fail("the broker never ran out of descriptors")


def wait_for_descriptors(pid: int, least: int, most: int) -> None:
    """Waits until a process has from `least` to `most` descriptors open."""
    deadline = time.monotonic() + SECONDS_MAX
    while not least <= descriptors_of(pid) <= most:
        assert time.monotonic() < deadline, f"{descriptors_of(pid)} are open"
        time.sleep(0.01)


def test_f13_a_broker_without_descriptors_answers_and_goes_on_when_it_has_some(
    tmp_path: Path, seed: int
) -> None:
    history = History()
    with (
        with_few_descriptors(tmp_path / "store") as broker,
        grpc.insecure_channel(broker.endpoint) as channel,
    ):
        client = Client(channel, history)
        assert client.send() == ResponseCode.SUCCESS
        before = descriptors_of(broker.pid)
        host, _, port = broker.endpoint.rpartition(":")
        with contextlib.ExitStack() as opened:
            for _ in range(CONNECTIONS):
                opened.enter_context(socket.create_connection((host, int(port)), SECONDS_MAX))
            wait_for_descriptors(broker.pid, DESCRIPTORS_MAX - 1, DESCRIPTORS_MAX)
            until_refused(client)
            pull(channel, History(), "reader", QUEUE)
        # New log files may keep descriptors; connections may not.
        files = len(list((tmp_path / "store" / "commitlog").iterdir()))
        wait_for_descriptors(broker.pid, 0, before + files)
        for _ in range(2 * SEGMENT_BYTES // BODY_BYTES):
            assert client.send() == ResponseCode.SUCCESS
        with grpc.insecure_channel(broker.endpoint) as another:
            pull(another, history, FINAL, QUEUE)
    history.check(tmp_path, seed)
    assert any(send.outcome is Outcome.REFUSED for send in history.sends.values())

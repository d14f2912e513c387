"""gRPC clients that record their calls: senders, readers, and their threads."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import grpc
import numpy as np

from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.rocketpy.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    broker_pb2,
    broker_pb2_grpc,
)
from tests.faults.histories.history import History, body_of
from tests.support.blocks import WireBlock, bodies_of, wire_block
from tests.support.time_limits import WAIT_SECONDS_MAX

CALL_SECONDS_MAX = WAIT_SECONDS_MAX
Block = tuple[QueueKey, list[bytes]]
# The interval at which a sender that waits for answers looks whether it should stop.
LOOK_SECONDS = 0.02


def append_request(queue: QueueKey, bodies: list[bytes]) -> broker_pb2.AppendRequest:
    """Returns the request that sends `bodies` as one block."""
    block = wire_block(queue.topic, bodies)
    return broker_pb2.AppendRequest(
        topic=queue.topic,
        queue_id=queue.queue_id,
        records=block.records,
        record_sizes=block.record_sizes,
    )


@dataclass
class Sender:
    """A client that sends until stopped or disconnected, with several requests in flight."""

    history: History
    endpoint: str
    name: str
    queues: list[QueueKey]
    plan: random.Random
    stopped: threading.Event
    acked: int = 0

    def run(self) -> None:
        """Sends; a request without an answer has an unknown outcome."""
        self._in_flight: deque[list[str]] = deque()
        self._slots = threading.Semaphore(self.plan.choice([1, 1, 4, 16]))
        with grpc.insecure_channel(self.endpoint) as channel:
            stub = broker_pb2_grpc.BrokerStub(channel)
            try:
                for response in stub.Append(self._requests(), timeout=CALL_SECONDS_MAX):
                    self._answered(response)
            except grpc.RpcError:
                self.stopped.set()

    def _answered(self, response: broker_pb2.AppendResponse) -> None:
        message_ids = self._in_flight.popleft()
        if response.status.code == 0:
            self.history.acked(message_ids, response.queue_id, response.queue_offset)
            self.acked += len(message_ids)
        self._slots.release()

    def _requests(self) -> Iterator[broker_pb2.AppendRequest]:
        count = 0
        while True:
            while not self._slots.acquire(timeout=LOOK_SECONDS):
                if self.stopped.is_set():
                    return
            if self.stopped.is_set():
                return
            message_ids = [f"{self.name}-{count + n}" for n in range(self.plan.choice([1, 1, 8]))]
            count += len(message_ids)
            bodies = [body_of(name, self.plan.randint(20, 900)) for name in message_ids]
            queue = self.plan.choice(self.queues)
            request = append_request(queue, bodies)
            self.history.begin(self.name, queue, bodies)
            self._in_flight.append(message_ids)
            yield request


@dataclass
class Reader:
    """A client that reads one queue with long polling until stopped or disconnected."""

    history: History
    endpoint: str
    name: str
    queue: QueueKey
    stopped: threading.Event
    offset: int = 0

    def run(self) -> None:
        """Reads, and records each message as a delivery to this reader."""
        with grpc.insecure_channel(self.endpoint) as channel:
            try:
                while not self.stopped.is_set():
                    self.offset = pull(
                        channel, self.history, self.name, self.queue, self.offset, wait_ms_max=50
                    )
            except grpc.RpcError:
                self.stopped.set()


def pull(
    channel: grpc.Channel,
    history: History,
    reader: str,
    queue: QueueKey,
    offset: int = 0,
    wait_ms_max: int = 0,
) -> int:
    """Records one pull's messages; returns the offset after them. Raises grpc.RpcError."""
    request = broker_pb2.PullRequest(
        topic=queue.topic, queue_id=queue.queue_id, offset=offset, wait_ms_max=wait_ms_max
    )
    for response in broker_pb2_grpc.BrokerStub(channel).Pull(request, timeout=CALL_SECONDS_MAX):
        sizes = np.frombuffer(response.record_sizes, ">i4").astype(np.int32)
        for number, body in enumerate(bodies_of(response.records, sizes), offset):
            history.delivered(reader, queue, number, body)
        offset = response.next_offset
    return offset


def create_topic(endpoint: str, topic: str, queues: int) -> None:
    """Creates a topic, however busy the machine is. Raises grpc.RpcError."""
    config = admin_pb2.TopicConfig(
        topic=topic, read_queue_nums=queues, write_queue_nums=queues, perm=6
    )
    with grpc.insecure_channel(endpoint) as channel:
        answer = admin_pb2_grpc.AdminStub(channel).UpdateTopic(
            admin_pb2.UpdateTopicRequest(config=config, create_only=True), timeout=CALL_SECONDS_MAX
        )
    assert answer.status.code == 0, answer.status.remark


def bodies_in(stub: broker_pb2_grpc.BrokerStub, queue: QueueKey) -> list[bytes]:
    """Returns all messages of a queue. Raises grpc.RpcError."""
    found: list[bytes] = []
    request = broker_pb2.PullRequest(topic=queue.topic, queue_id=queue.queue_id)
    for response in stub.Pull(request, timeout=CALL_SECONDS_MAX):
        found += bodies_of(response.records, response.record_sizes)
    return found


@dataclass
class BatchClient:
    """A job at a batch; `tasks` are its staged tasks."""

    job: broker_pb2.BatchJob
    tasks: broker_pb2.StagedTasks = field(default_factory=broker_pb2.StagedTasks)

    def stage(self, stub: broker_pb2_grpc.BrokerStub, blocks: list[Block]) -> None:
        """Stages the next task. Raises grpc.RpcError."""
        task, token = len(self.tasks.task), self.job.job_token
        requests = self._requests(task, token, blocks)
        *_, answer = stub.StageBlocks(requests, timeout=CALL_SECONDS_MAX)
        assert answer.status.code == 0, answer.status.remark
        self.tasks.task.append(task)
        self.tasks.task_token.append(token)
        self.tasks.block_count.append(answer.block_count)
        self.tasks.record_count.append(answer.record_count)
        self.tasks.bytes.append(answer.bytes)

    def _requests(
        self, task: int, token: int, blocks: list[Block]
    ) -> Iterator[broker_pb2.StageBlocksRequest]:
        for number, (queue, bodies) in enumerate([*blocks, (QueueKey("", 0), [])]):
            block = wire_block(queue.topic, bodies) if bodies else WireBlock(b"", b"")
            yield broker_pb2.StageBlocksRequest(
                job=self.job,
                task=task,
                task_token=token,
                block_number=number,
                topic=queue.topic,
                queue_id=queue.queue_id,
                records=block.records,
                record_sizes=block.record_sizes,
                is_last=not bodies,
            )

    def commit_request(self) -> broker_pb2.CommitBatchRequest:
        """Returns the request that commits all staged tasks."""
        return broker_pb2.CommitBatchRequest(job=self.job, tasks=self.tasks, wait_ms_max=60_000)


def run_all(works: list[Callable[[], None]]) -> list[threading.Thread]:
    """Starts a thread for each function."""
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    return threads


def join_all(threads: list[threading.Thread]) -> None:
    """Waits for the end of all threads, which have been asked to stop."""
    for thread in threads:
        thread.join(CALL_SECONDS_MAX)
        assert not thread.is_alive(), "a client does not end"

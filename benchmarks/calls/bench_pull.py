"""Pulls of hot data over gRPC, against a bare grpc.aio stream of equal chunks.

Both servers run in their own processes; both clients are plain synchronous stubs in this one. The
bare stream sends one `bytes` object repeatedly, so it measures gRPC alone. The Pull client takes
the response message apart, as the connector does, and no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

import grpc

from benchmarks import data
from benchmarks.calls.bare_server import STREAM_METHOD, bare_server
from benchmarks.harness import Result, compare
from rocketpy_broker import LocalBroker
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.pull_wire import PullResponseParts, deserialize
from rocketpy_proto.rocketpy.v1 import broker_pb2, broker_pb2_grpc
from rocketpy_proto.tls import TlsConfig
from rocketpy_proto.tls_channel import channel_to

BODY_BYTES = 1024
ROUND_BYTES = 192 << 20
RESPONSE_BYTES = 512 << 10
BLOCK_MESSAGES = 800
if TYPE_CHECKING:
    BareCall: TypeAlias = grpc.UnaryStreamMultiCallable[bytes, bytes]
    PullMethod: TypeAlias = grpc.UnaryStreamMultiCallable[broker_pb2.PullRequest, PullResponseParts]
CHANNEL_OPTIONS = [("grpc.max_receive_message_length", -1)]
TOGETHER_MIN, INTERLEAVED_MIN, TLS_MIN = 0.6, 0.35, 0.7
INTERLEAVED_QUEUES = 8


def append_all(broker: LocalBroker, queues: int) -> int:
    """Fills the topic; several queues get single records in turn. Returns messages per queue."""
    blocks = ROUND_BYTES // (BLOCK_MESSAGES * BODY_BYTES)
    together = data.block(BLOCK_MESSAGES, BODY_BYTES)
    single = data.block(1, BODY_BYTES)

    def requests() -> Iterator[broker_pb2.AppendRequest]:
        for number in range(blocks if queues == 1 else blocks * BLOCK_MESSAGES):
            block = together if queues == 1 else single
            yield broker_pb2.AppendRequest(
                topic=data.TOPIC,
                queue_id=number % queues,
                records=block.records,
                record_sizes=block.record_sizes,
            )

    with grpc.insecure_channel(broker.endpoint) as channel:
        for response in broker_pb2_grpc.BrokerStub(channel).Append(requests()):
            if response.status.code:
                raise RuntimeError(response.status.remark)
    return blocks * BLOCK_MESSAGES // queues


def run_case(name: str, queues: int, bare_endpoint: str, goal: float) -> Result:
    """Reads every queue once, and the same number of bytes from the bare server."""
    with LocalBroker(flush=FlushDiskType.ASYNC_FLUSH, commit_log_segment_bytes=1 << 30) as broker:
        broker.create_topic(data.TOPIC, queues=queues)
        count = append_all(broker, queues)
        with (
            grpc.insecure_channel(broker.endpoint, CHANNEL_OPTIONS) as channel,
            grpc.insecure_channel(bare_endpoint, CHANNEL_OPTIONS) as bare_channel,
        ):
            pull: PullMethod = channel.unary_stream(
                "/rocketpy.v1.Broker/Pull",
                request_serializer=broker_pb2.PullRequest.SerializeToString,
                response_deserializer=deserialize,
            )
            bare: BareCall = bare_channel.unary_stream(STREAM_METHOD)
            sizes: list[int] = []

            def ours() -> None:
                sizes.clear()
                for queue_id in range(queues):
                    request = broker_pb2.PullRequest(
                        topic=data.TOPIC, queue_id=queue_id, response_bytes_max=RESPONSE_BYTES
                    )
                    sizes.extend(len(response.records[0]) for response in pull(request))

            def baseline() -> None:
                chunks = len(sizes)
                request = b"%d %d" % (sum(sizes) // chunks, chunks)
                for _ in bare(request):
                    pass

            comparison = compare(ours, baseline)
    speed = queues * count / comparison.seconds / 1e6
    detail = f"{speed:.2f} M msgs/s, bare {sum(sizes) / comparison.baseline_seconds / 1e9:.2f} GB/s"
    return Result(f"pull / bare stream, {name}", comparison.ratio, "ratio", goal, detail=detail)


def pulled(channel: grpc.Channel) -> None:
    """Reads queue 0 once."""
    pull: PullMethod = channel.unary_stream(
        "/rocketpy.v1.Broker/Pull",
        request_serializer=broker_pb2.PullRequest.SerializeToString,
        response_deserializer=deserialize,
    )
    for _ in pull(broker_pb2.PullRequest(topic=data.TOPIC, response_bytes_max=RESPONSE_BYTES)):
        pass


def run_tls() -> Result:
    """Reads one queue over TLS, and over plaintext from the same broker."""
    with LocalBroker(
        flush=FlushDiskType.ASYNC_FLUSH, commit_log_segment_bytes=1 << 30, tls=True
    ) as broker:
        broker.create_topic(data.TOPIC, queues=1)
        count = append_all(broker, 1)
        tls = TlsConfig(ca_file=broker.tls_ca_file)
        with (
            channel_to(broker.tls_endpoint, CHANNEL_OPTIONS, tls) as secured,
            channel_to(broker.endpoint, CHANNEL_OPTIONS, None) as plain,
        ):
            comparison = compare(lambda: pulled(secured), lambda: pulled(plain))
    detail = f"{count / comparison.seconds / 1e6:.2f} M msgs/s"
    name = "pull over TLS / plaintext, 1 KiB"
    return Result(name, comparison.ratio, "ratio", TLS_MIN, detail=detail)


def run() -> list[Result]:
    """Returns one queue with contiguous records, eight with interleaved records, and one by TLS."""
    with bare_server() as bare:
        return [
            run_tls(),
            run_case("1 KiB, records together", 1, bare, TOGETHER_MIN),
            run_case("1 KiB, 8 queues interleaved", INTERLEAVED_QUEUES, bare, INTERLEAVED_MIN),
        ]

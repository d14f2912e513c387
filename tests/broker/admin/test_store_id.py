"""Store ids: reported, kept, and compared with the id in a request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.store.config import StoreConfig
from rocketpy_broker.store.files import store_id
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record import Host
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2
from tests.support.blocks import wire_block
from tests.support.broker.running_broker import RunningBroker, StartBroker
from tests.support.copies import copy_store

OTHER = "0123456789abcdef0123456789abcdef"
# Requests with an id of their own, and requests with the id in their job.
PLAIN = [
    "Append",
    "Pull",
    "QueryOffsets",
    "SearchOffsets",
    "FindKeys",
    "MeasureRanges",
    "LimitRanges",
    "CommitOffsets",
]
OF_JOBS = ["StageBlocks", "CommitBatch", "QueryBatch", "AbortBatch"]
# Requests that neither read nor change what a query depends on.
WITHOUT = {"CheckFilter", "QueryConsumerOffsets", "RecallMessage"}


def opened_id(folder: Path) -> str:
    """Returns the id of the store in a folder, as a start finds or creates it."""
    store = MessageStore(StoreConfig(folder), ManualClock(), Host.parse("10.0.0.2:10911"))
    store.open()
    store.close()
    return store.store_id


async def told_id(running: RunningBroker) -> str:
    info = await running.admin.GetBrokerInfo(admin_pb2.GetBrokerInfoRequest())
    return str(info.store_id)


def request_for(method: str, store_id: str) -> Any:
    """Returns a request that has an effect wherever it is accepted."""
    wire = wire_block("T", [b"a"])
    records = {"topic": "T", "records": wire.records, "record_sizes": wire.record_sizes}
    ranges = [broker_pb2.OffsetRange(topic="T", queue_id=0, begin=0, end=1)]
    job = {"writer_id": "w", "batch_id": 1, "job_token": 5, "store_id": store_id}
    fields: dict[str, dict[str, Any]] = {
        "Append": records,
        "Pull": {"topic": "T"},
        "QueryOffsets": {"topics": ["T"]},
        "SearchOffsets": {"queues": [broker_pb2.QueueTime(topic="T")]},
        "FindKeys": {"ranges": ranges, "keys": ["k"]},
        "MeasureRanges": {"ranges": ranges, "bytes_max": 1},
        "LimitRanges": {"ranges": ranges, "bytes_max": [1]},
        "CommitOffsets": {
            "consumer_group": "g",
            "offsets": [broker_pb2.CommittedOffset(topic="T", queue_id=0, offset=1)],
        },
        "StageBlocks": {**records, "task_token": 9},
    }
    name = {"StageBlocks": "StageBlocksRequest"}.get(method, f"{method}Request")
    whose = {"job": job} if method in OF_JOBS else {"store_id": store_id}
    return getattr(broker_pb2, name)(**fields.get(method, {}), **whose)


async def answer_to(running: RunningBroker, method: str, store_id: str) -> Any:
    """Returns the first answer to a request for this store."""
    request, call = request_for(method, store_id), getattr(running.data, method)
    if method in {"Append", "StageBlocks"}:
        return await call(_one(request)).read()
    return await call(request).read() if method == "Pull" else await call(request)


async def _one(request: Message) -> AsyncIterator[Message]:
    yield request


def test_s9_every_method_is_looked_at() -> None:
    methods = {method.name for method in broker_pb2.DESCRIPTOR.services_by_name["Broker"].methods}
    assert methods == {*PLAIN, *OF_JOBS} | WITHOUT


@pytest.mark.parametrize("method", [*PLAIN, *OF_JOBS])
async def test_s9_what_is_meant_for_another_store_is_refused_by_name(
    method: str, running: RunningBroker
) -> None:
    await running.create_topic("T", 1)
    own = await told_id(running)
    refused = await answer_to(running, method, OTHER)
    assert refused.status.code == ResponseCode.NOT_LEADER_FOR_QUEUE
    assert OTHER in refused.status.remark
    assert own in refused.status.remark
    assert "endpoints" in refused.status.remark
    offsets = await running.data.QueryOffsets(
        broker_pb2.QueryOffsetsRequest(topics=["T"], consumer_group="g")
    )
    (queue,) = offsets.topics[0].queues
    assert (queue.max_offset, queue.committed_offset) == (0, -1)
    staged = await running.data.AbortBatch(request_for("AbortBatch", own))
    assert staged.attempt_count == 0


@pytest.mark.parametrize("method", [*PLAIN, *OF_JOBS])
async def test_s9_what_is_meant_for_this_store_or_for_any_is_taken(
    method: str, running: RunningBroker
) -> None:
    await running.create_topic("T", 1)
    for accepted in (await told_id(running), ""):
        answer = await answer_to(running, method, accepted)
        assert answer.status.code != ResponseCode.NOT_LEADER_FOR_QUEUE


async def test_s9_a_refused_block_does_not_end_its_stream(running: RunningBroker) -> None:
    await running.create_topic("T", 1)

    async def both() -> AsyncIterator[broker_pb2.AppendRequest]:
        yield request_for("Append", OTHER)
        yield request_for("Append", await told_id(running))

    codes = [answer.status.code async for answer in running.data.Append(both())]
    assert codes == [501, 0]


async def test_s9_the_id_survives_restarts_and_offsets_tell_it(start_broker: StartBroker) -> None:
    ids = []
    for _ in range(2):
        async with start_broker() as running:
            ids.append(await told_id(running))
            offsets = await running.data.QueryOffsets(broker_pb2.QueryOffsetsRequest())
            ids.append(offsets.store_id)
    assert len(set(ids)) == 1
    assert len(ids[0]) == 32


def test_s9_a_copy_has_the_id_and_another_directory_has_another(tmp_path: Path) -> None:
    first = opened_id(tmp_path / "a")
    copy_store(tmp_path / "a", tmp_path / "b")
    assert opened_id(tmp_path / "b") == first
    assert opened_id(tmp_path / "c") != first


@pytest.mark.parametrize("change", ["cut", "flips", "empty", "text"])
def test_s9_a_damaged_id_is_no_new_one_but_an_error(tmp_path: Path, change: str) -> None:
    opened_id(tmp_path)
    path = tmp_path / "rocketpy" / "storeId"
    data = path.read_bytes()
    half = len(data) // 2
    flipped = bytes([data[0] ^ 1]) + data[1:half]
    texts = {"cut": data[: half - 2], "flips": flipped * 2, "empty": b"", "text": b"\xff" * 33}
    path.write_bytes(texts[change])
    with pytest.raises(StoreDirectoryError, match=r"storeId: is damaged; restore it"):
        opened_id(tmp_path)
    path.write_bytes(data)
    opened_id(tmp_path)


def test_f5_a_flipped_bit_of_the_id_is_mended_from_its_other_copy(tmp_path: Path) -> None:
    first = opened_id(tmp_path)
    path = tmp_path / "rocketpy" / "storeId"
    data = path.read_bytes()
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :])
        assert store_id.load_or_generate(path) == first
        assert path.read_bytes() == data


def test_s9_a_directory_without_an_id_gets_one_at_its_next_start(tmp_path: Path) -> None:
    """Covers a directory that RocketMQ has made."""
    first = opened_id(tmp_path)
    (tmp_path / "rocketpy" / "storeId").unlink()
    assert opened_id(tmp_path) not in {"", first}

"""FindKeys through real gRPC: where in ranges of queues messages with a key can be."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence

import pytest

from rocketpy_broker.services.pull.key_lookup import GAP_MAX, PLACES_MAX, PLACES_OF_KEY_MAX
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.support.blocks import wire_block
from tests.support.broker.clients.batch_writer import Job
from tests.support.broker.running_broker import RunningBroker
from tests.support.store.disk_calls import INDEX, before_call, failing

# Queue, begin, end.
Part = tuple[int, int, int]


async def find(
    running: RunningBroker, keys: Sequence[str], *ranges: Part, topic: str = "T"
) -> broker_pb2.FindKeysResponse:
    parts = [
        broker_pb2.OffsetRange(topic=topic, queue_id=queue_id, begin=begin, end=end)
        for queue_id, begin, end in ranges
    ]
    request = broker_pb2.FindKeysRequest(ranges=parts, keys=keys)
    response: broker_pb2.FindKeysResponse = await running.data.FindKeys(request)
    return response


async def found(running: RunningBroker, keys: Sequence[str], *ranges: Part) -> list[Part]:
    response = await find(running, keys, *ranges)
    assert response.status.code == ResponseCode.SUCCESS, response.status.remark
    assert response.range_count == len(ranges)
    return [(part.queue_id, part.begin, part.end) for part in response.ranges]


async def append(running: RunningBroker, queue_id: int, keys: Sequence[str]) -> None:
    block = wire_block("T", [b"x"] * len(keys), keys=keys)
    response = await running.append_block("T", queue_id, block)
    assert response.status.code == ResponseCode.SUCCESS


async def test_k05_parts_hold_every_message_with_a_key_and_little_else(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    keys = [f"{number} common" for number in range(2_000)]
    await append(running, 0, keys[:1_000])
    await append(running, 1, keys[1_000:])
    whole = [(0, 0, 1_000), (1, 0, 1_000)]
    assert await found(running, ["7"], *whole) == [(0, 7, 8)]
    assert await found(running, ["7", "900", "3", "1999"], *whole) == [
        (0, 3, 8),
        (0, 900, 901),
        (1, 999, 1_000),
    ]
    assert await found(running, ["7", "900"], (0, 8, 900), (0, 900, 2_000)) == [(0, 900, 901)]
    assert await found(running, ["absent"], *whole) == []
    assert await found(running, ["7"]) == []


def parts_around(offsets: Sequence[int], queue_id: int) -> list[Part]:
    """Returns the expected parts; messages further apart than GAP_MAX are in parts of their own."""
    parts: list[Part] = []
    for offset in offsets:
        if parts and offset - parts[-1][2] < GAP_MAX:
            parts[-1] = (queue_id, parts[-1][1], offset + 1)
        else:
            parts.append((queue_id, offset, offset + 1))
    return parts


async def test_k05_parts_hold_every_message_with_a_key_whatever_the_keys(
    running: RunningBroker,
) -> None:
    chance, size = random.Random(11), 20 * GAP_MAX
    await running.create_topic("T")
    queues = [
        [
            " ".join(chance.choices("abcdefghij", k=chance.randrange(1, 3)))
            if chance.randrange(GAP_MAX) < 8
            else ""
            for _ in range(size)
        ]
        for _ in range(3)
    ]
    for queue_id, keys in enumerate(queues):
        await append(running, queue_id, keys)
    for _ in range(40):
        wanted = chance.sample("abcdefghij", chance.randrange(1, 4))
        low, high = sorted(chance.sample(range(size + GAP_MAX), 2))
        expected: list[Part] = []
        for queue_id, keys in enumerate(queues):
            offsets = [
                offset
                for offset in range(low, min(high, size))
                if set(keys[offset].split(" ")).intersection(wanted)
            ]
            expected += parts_around(offsets, queue_id)
        assert await found(running, wanted, *[(i, low, high) for i in range(3)]) == expected


async def test_s08_a_staged_message_is_in_no_part_until_it_shows(running: RunningBroker) -> None:
    await running.create_topic("T")
    job = Job(running)
    await job.stage((0, [b"k"]))
    await append(running, 0, ["other"])
    assert await found(running, ["k"], (0, 0, 10)) == []
    await job.commit()
    assert await found(running, ["k"], (0, 0, 10)) == [(0, 1, 2)]


async def test_k05_ranges_come_back_whole_where_too_much_is_found(running: RunningBroker) -> None:
    await running.create_topic("T")
    keys = [f"k{number}" for number in range(PLACES_MAX // PLACES_OF_KEY_MAX)]
    whole, part = (0, 0, 2_000), (0, 1, 1 + PLACES_OF_KEY_MAX)
    await append(running, 0, ["one more", *[" ".join(keys)] * PLACES_OF_KEY_MAX, ""])
    assert await found(running, keys, whole) == [part]
    assert await found(running, [*keys, "more"], whole) == [whole]
    await append(running, 1, keys[:1])
    assert await found(running, keys[:1], whole) == [whole]
    assert await found(running, keys[1:2], whole) == [part]


async def test_k05_ranges_come_back_whole_while_the_index_lags(
    monkeypatch: pytest.MonkeyPatch, running: RunningBroker
) -> None:
    await running.create_topic("T")
    with monkeypatch.context() as patched:
        before_call(patched, "pwrite", INDEX, failing(errno.ENOSPC))
        await append(running, 0, ["a", "b"])
        assert await found(running, ["b"], (0, 0, 2)) == [(0, 0, 2)]
    assert await found(running, ["b"], (0, 0, 2)) == [(0, 1, 2)]


async def test_k05_a_damaged_record_with_the_key_is_not_left_out(running: RunningBroker) -> None:
    await running.create_topic("T")
    await append(running, 0, ["a", "b", "c"])
    log = running.broker.store._log
    (segment,) = log.files.segments
    position = bytes(segment.view).index(b"KEYS\x01b")
    segment.write(position, memoryview(b"K"[::-1].lower()))
    assert await found(running, ["c"], (0, 0, 3)) == [(0, 2, 3)]
    assert await found(running, ["b"], (0, 0, 3)) == [(0, 0, 3)]


async def test_k05_ranges_come_back_whole_where_too_many_keys_are_wanted(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    await append(running, 0, ["k0", "other"])
    keys = [f"k{number}" for number in range(1_001)]
    assert await found(running, keys[:1_000], (0, 0, 2)) == [(0, 0, 1)]
    assert await found(running, keys, (0, 0, 2)) == [(0, 0, 2)]


async def test_k05_more_ranges_than_a_call_takes_are_refused(running: RunningBroker) -> None:
    await running.create_topic("T")
    response = await find(running, ["k"], *[(0, 0, 1)] * 1_000)
    assert response.range_count == 1_000
    response = await find(running, ["k"], *[(0, 0, 1)] * 1_001)
    assert response.status.code == ResponseCode.INVALID_PARAMETER
    assert "number of ranges is 1001, accepted is 1000 or fewer" in response.status.remark


@pytest.mark.parametrize(
    ("topic", "keys", "part", "code", "words"),
    [
        ("Unknown", ["k"], (0, 0, 1), ResponseCode.TOPIC_NOT_EXIST, "Unknown"),
        ("T", ["k"], (9, 0, 1), ResponseCode.INVALID_PARAMETER, "queue id 9"),
        ("T", ["k"], (0, -1, 1), ResponseCode.INVALID_PARAMETER, "begin"),
        ("T", ["k"], (0, 2, 1), ResponseCode.INVALID_PARAMETER, "end"),
        ("T", [], (0, 0, 1), ResponseCode.INVALID_PARAMETER, "keys"),
    ],
)
async def test_k05_a_wrong_query_is_refused_by_name(
    topic: str, keys: list[str], part: Part, code: ResponseCode, words: str, running: RunningBroker
) -> None:
    await running.create_topic("T")
    response = await find(running, keys, part, topic=topic)
    assert response.status.code == code
    assert words in response.status.remark
    assert not response.ranges

"""Checks of a broker's answers, beyond their status: an answer that says too little is an error.

A field that is missing reads as 0 or empty. Nothing of the kind is believed, and nothing is kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pyspark_rocketpy.errors import BrokerError
from pyspark_rocketpy.offsets import QueueRange
from pyspark_rocketpy.transport.values import BrokerLimits
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2

_OUTCOMES = frozenset(broker_pb2.BatchOutcome.values()) - {broker_pb2.BATCH_OUTCOME_UNSPECIFIED}


def require(method: str, *, is_right: bool, what: str) -> None:
    """Raises BrokerError where an answer is not right: it is refused for what it says."""
    if not is_right:
        raise BrokerError(
            f"the broker's answer to {method} cannot be used: {what}; see whether a broker of "
            "rocketpy serves at option endpoints, and which version it has"
        )


def limits_of(info: admin_pb2.GetBrokerInfoResponse) -> BrokerLimits:
    """Returns what the broker takes. Raises BrokerError where it does not say."""
    body, request, segment = (
        info.body_bytes_max,
        info.request_bytes_max,
        info.commit_log_segment_bytes,
    )
    require(
        "GetBrokerInfo",
        is_right=body > 0 and request > 0 and segment >= 0,
        what=f"it takes bodies of {body} bytes and requests of {request}",
    )
    return BrokerLimits(body, request, segment)


def write_queue_nums(
    response: admin_pb2.ListTopicsResponse, topics: Sequence[str]
) -> dict[str, int]:
    """Returns how many queues each topic has for writing. Raises BrokerError."""
    nums = {config.topic: config.write_queue_nums for config in response.configs}
    for topic in topics:
        num = nums.get(topic, 0)
        require("ListTopics", is_right=num > 0, what=f"topic {topic} has {num} queues to write")
    return {topic: nums[topic] for topic in topics}


def check_topics(response: broker_pb2.QueryOffsetsResponse, named: Sequence[str]) -> None:
    """Raises BrokerError unless each named topic is answered, and bounds can be bounds."""
    answered = {topic.topic for topic in response.topics}
    for topic in named:
        is_right = topic in answered
        require("QueryOffsets", is_right=is_right, what=f"topic {topic} is not in it")
    for its in response.topics:
        for queue in its.queues:
            begin, end = queue.min_offset, queue.max_offset
            require(
                "QueryOffsets",
                is_right=0 <= begin <= end and queue.queue_id >= 0,
                what=f"topic {its.topic}, queue {queue.queue_id} has messages [{begin}, {end})",
            )


def check_count(method: str, count: int, count_max: int) -> None:
    """Raises BrokerError unless a call has answered for one entry at least, and none beyond."""
    what = f"it is about {count} of {count_max} entries"
    require(method, is_right=0 < count <= count_max, what=what)


def check_found(response: broker_pb2.SearchOffsetsResponse, count_max: int) -> None:
    """Raises BrokerError for offsets that no queue has."""
    check_count("SearchOffsets", len(response.offsets), count_max)
    least = min(each.offset for each in response.offsets)
    require("SearchOffsets", is_right=least >= 0, what=f"an offset is {least}")


def check_ends(method: str, ranges: Sequence[QueueRange], ends: Sequence[int]) -> None:
    """Raises BrokerError unless the ends are those of the first ranges, within them."""
    check_count(method, len(ends), len(ranges))
    for part, end in zip(ranges, ends, strict=False):
        is_right = part.begin <= end <= part.end
        require(method, is_right=is_right, what=f"{part.rest(part.begin)} end at {end}")


def check_measures(
    response: broker_pb2.MeasureRangesResponse, ranges: Sequence[QueueRange]
) -> None:
    """Raises BrokerError for ends outside the ranges, and for sizes below 0."""
    check_ends("MeasureRanges", ranges, [each.end for each in response.ranges])
    for each in response.ranges:
        counts = each.bytes, each.offset_count, each.offset_count_left, each.first_bytes
        is_right = min(counts) >= 0
        require("MeasureRanges", is_right=is_right, what=f"sizes and counts are {counts}")


def check_limits(response: broker_pb2.LimitRangesResponse, ranges: Sequence[QueueRange]) -> None:
    """Raises BrokerError for ends outside the ranges, and unless each has its bytes."""
    check_ends("LimitRanges", ranges, response.ends)
    is_right = len(response.bytes) == len(response.ends) and min(response.bytes) >= 0
    require("LimitRanges", is_right=is_right, what=f"bytes are {list(response.bytes)}")


def check_parts(response: broker_pb2.FindKeysResponse, ranges: Sequence[QueueRange]) -> None:
    """Raises BrokerError unless each part lies in one of the ranges that were looked through."""
    check_count("FindKeys", response.range_count, len(ranges))
    wholes: dict[tuple[str, int], list[QueueRange]] = defaultdict(list)
    for part in ranges[: response.range_count]:
        wholes[part.topic, part.queue_id].append(part)
    for each in response.ranges:
        around = wholes.get((each.topic, each.queue_id), [])
        is_right = any(whole.begin <= each.begin <= each.end <= whole.end for whole in around)
        place = f"{each.topic}, queue {each.queue_id}, [{each.begin}, {each.end})"
        require("FindKeys", is_right=is_right, what=f"{place} was not asked for")


def check_batch(method: str, response: broker_pb2.BatchResponse, job: broker_pb2.BatchJob) -> None:
    """Raises BrokerError for an outcome that is none, or is of another batch than it can be."""
    outcome, batch_id = response.outcome, response.batch_id
    is_right = outcome in _OUTCOMES and min(response.record_count, batch_id + 1) >= 0
    if outcome == broker_pb2.COMMITTED:
        is_right = is_right and batch_id == job.batch_id
    if outcome == broker_pb2.ALREADY_COMMITTED:
        is_right = is_right and batch_id >= job.batch_id
    what = f"of batch {job.batch_id} it says outcome {outcome} of batch {batch_id}"
    require(method, is_right=is_right, what=what)


def check_appended(response: broker_pb2.AppendResponse, count: int) -> None:
    """Raises BrokerError unless each record of the block is acknowledged."""
    what = f"it acknowledges {response.record_count} of {count} messages of a block"
    require("Append", is_right=response.record_count == count, what=what)

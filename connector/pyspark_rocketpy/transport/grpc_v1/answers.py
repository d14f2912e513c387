"""Checks of a broker's answers beyond their status.

A missing field reads as 0 or empty. An answer with impossible values is an error, and nothing of it
is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_rocketpy.errors import BrokerError
from pyspark_rocketpy.offsets import QueueRange
from pyspark_rocketpy.transport.values import BrokerLimits
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2

_OUTCOMES = frozenset(broker_pb2.BatchOutcome.values()) - {broker_pb2.BATCH_OUTCOME_UNSPECIFIED}


def unusable(method: str, what: str) -> BrokerError:
    """Returns the error for an answer with unusable content."""
    return BrokerError(
        f"the broker's answer to {method} cannot be used: {what}; check that option endpoints "
        "names a broker of rocketpy, and check its version"
    )


def limits_of(info: admin_pb2.GetBrokerInfoResponse) -> BrokerLimits:
    """Returns the broker's limits. Raises BrokerError if they are missing."""
    body, request = info.body_bytes_max, info.request_bytes_max
    segment = info.commit_log_segment_bytes
    if body <= 0 or request <= 0 or segment < 0:
        what = f"limits of {body}, {request} and {segment} bytes for bodies, requests and segments"
        raise unusable("GetBrokerInfo", what)
    return BrokerLimits(body, request, segment)


def write_queue_nums(
    response: admin_pb2.ListTopicsResponse, topics: Sequence[str]
) -> dict[str, int]:
    """Returns the number of each topic's queues for writing. Raises BrokerError."""
    nums = {config.topic: config.write_queue_nums for config in response.configs}
    for topic in topics:
        if nums.get(topic, 0) <= 0:
            raise unusable("ListTopics", f"topic {topic} has {nums.get(topic, 0)} write queues")
    return {topic: nums[topic] for topic in topics}


def check_topics(response: broker_pb2.QueryOffsetsResponse, named: Sequence[str]) -> None:
    """Raises BrokerError if a named topic is missing, or a queue has impossible bounds."""
    answered = {topic.topic for topic in response.topics}
    for topic in named:
        if topic not in answered:
            raise unusable("QueryOffsets", f"topic {topic} is not in it")
    for its in response.topics:
        for queue in (*its.queues, *its.hidden_queues):
            begin, end = queue.min_offset, queue.max_offset
            if not 0 <= begin <= end or queue.queue_id < 0:
                place = f"topic {its.topic}, queue {queue.queue_id}"
                raise unusable("QueryOffsets", f"{place} has messages [{begin}, {end})")


def check_count(method: str, count: int, count_max: int) -> None:
    """Raises BrokerError unless a call answers for 1 to `count_max` entries."""
    if not 0 < count <= count_max:
        raise unusable(method, f"it has {count} entries, not 1 to {count_max}")


def check_found(response: broker_pb2.SearchOffsetsResponse, count_max: int) -> None:
    """Raises BrokerError for a wrong number of offsets, and for negative offsets."""
    check_count("SearchOffsets", len(response.offsets), count_max)
    least = min(each.offset for each in response.offsets)
    if least < 0:
        raise unusable("SearchOffsets", f"an offset is {least}")


def check_ends(method: str, ranges: Sequence[QueueRange], ends: Sequence[int]) -> None:
    """Raises BrokerError unless the ends belong to the first ranges and are within them."""
    check_count(method, len(ends), len(ranges))
    for part, end in zip(ranges, ends, strict=False):
        if not part.begin <= end <= part.end:
            raise unusable(method, f"{part.rest(part.begin)} end at {end}")


def check_measures(
    response: broker_pb2.MeasureRangesResponse, ranges: Sequence[QueueRange]
) -> None:
    """Raises BrokerError for ends outside the ranges, and for sizes below 0."""
    check_ends("MeasureRanges", ranges, [each.end for each in response.ranges])
    for each in response.ranges:
        counts = each.bytes, each.offset_count, each.offset_count_left, each.first_bytes
        if min(counts) < 0:
            raise unusable("MeasureRanges", f"sizes and counts are {counts}")


def check_limits(response: broker_pb2.LimitRangesResponse, ranges: Sequence[QueueRange]) -> None:
    """Raises BrokerError for ends outside the ranges, and for ends without their bytes."""
    check_ends("LimitRanges", ranges, response.ends)
    if len(response.bytes) != len(response.ends) or min(response.bytes) < 0:
        raise unusable(
            "LimitRanges", f"{len(response.ends)} ends have {list(response.bytes)} bytes"
        )


def check_parts(response: broker_pb2.FindKeysResponse, ranges: Sequence[QueueRange]) -> None:
    """Raises BrokerError unless the parts are within the searched ranges, in their order."""
    check_count("FindKeys", response.range_count, len(ranges))
    around = iter(ranges[: response.range_count])
    whole = next(around, None)
    for each in response.ranges:
        while whole is not None and not _holds(whole, each):
            whole = next(around, None)
        if whole is None:
            place = f"{each.topic}, queue {each.queue_id}, [{each.begin}, {each.end})"
            raise unusable("FindKeys", f"{place} was not requested")


def _holds(whole: QueueRange, part: broker_pb2.OffsetRange) -> bool:
    is_same = (whole.topic, whole.queue_id) == (part.topic, part.queue_id)
    return is_same and whole.begin <= part.begin <= part.end <= whole.end


def check_batch(method: str, response: broker_pb2.BatchResponse, job: broker_pb2.BatchJob) -> None:
    """Raises BrokerError for an unknown outcome, or a batch that cannot have the outcome."""
    outcome, batch_id = response.outcome, response.batch_id
    is_right = outcome in _OUTCOMES and response.record_count >= 0 and batch_id >= -1
    if outcome == broker_pb2.COMMITTED:
        is_right = is_right and batch_id == job.batch_id
    if outcome == broker_pb2.ALREADY_COMMITTED:
        is_right = is_right and batch_id >= job.batch_id
    if not is_right:
        counted = f"outcome {outcome} of batch {batch_id} with {response.record_count} messages"
        raise unusable(method, f"for batch {job.batch_id} it reports {counted}")


def check_appended(response: broker_pb2.AppendResponse, count: int) -> None:
    """Raises BrokerError unless each record of the block is acknowledged."""
    if response.record_count != count:
        what = f"it acknowledges {response.record_count} of {count} messages of a block"
        raise unusable("Append", what)

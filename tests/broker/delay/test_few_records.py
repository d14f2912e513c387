"""Few records are handled one by one; the results equal the ones of whole blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_address
from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.services.delay.schedule import TIMER_DEL_UNIQKEY, DelaySchedule, TimerLimits
from rocketpy_broker.services.delay.timer.records import TIMER_ROLL_TIMES, TimerRecords, read_times
from rocketpy_broker.store.delay_levels import DelayLevels
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.record import Host, Record, RecordBlock, encode_record
from rocketpy_proto.record.index_keys import FEW_RECORDS
from rocketpy_proto.record.properties import (
    REAL_TOPIC,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    UNIQ_KEY,
)

NOW_MS = ManualClock().now_ms()
DELAY_MS_MAX, SEGMENT_BYTES = 10_000, 4_096
Placed: TypeAlias = "tuple[QueueKey, bytes] | tuple[type[BrokerError], str]"

texts = st.text(st.characters(exclude_characters="\1\2", exclude_categories=["Cs"]), max_size=40)
hosts = st.sampled_from(["10.0.0.1", "::1"]).map(lambda text: Host(ip_address(text), 10_911))
times_ms = st.integers(-2_500, DELAY_MS_MAX + 1).map(lambda ahead_ms: NOW_MS + ahead_ms)
counts = st.integers(0, 6)


@st.composite
def own_records(draw: st.DrawFn) -> Record:
    """Draws a check point or acknowledgement; its body may be too large for a segment."""
    return Record(
        "rmq_sys_REVIVE_LOG_DefaultCluster",
        draw(st.integers(0, 7)),
        draw(st.binary(max_size=200)) * draw(st.sampled_from([1, 20])),
        {
            TAGS: draw(st.sampled_from(["ck", "ack"])),
            UNIQ_KEY: draw(texts),
            TIMER_DELIVER_MS: str(draw(times_ms)),
        },
        born_timestamp_ms=NOW_MS,
        born_host=draw(hosts),
        store_host=draw(hosts),
    )


def outcome(place: Callable[[], tuple[QueueKey, RecordBlock]]) -> Placed:
    """Returns the queue and the bytes, or the error."""
    try:
        queue, block = place()
    except BrokerError as error:
        return type(error), str(error)
    return queue, block.data.tobytes()


@given(st.lists(own_records(), min_size=1, max_size=3), counts, st.booleans(), st.booleans())
def test_single_records_wait_in_the_form_of_a_block(
    drawn: list[Record], waiting_count: int, is_enabled: bool, is_ack: bool
) -> None:
    limits = TimerLimits(is_enabled, DELAY_MS_MAX, 3, lambda: waiting_count)
    schedule = DelaySchedule(DelayLevels.parse(), ManualClock(), limits, SEGMENT_BYTES)
    queue = QueueKey(drawn[0].topic, drawn[0].queue_id)
    own = [replace(each, queue_id=queue.queue_id) for each in drawn]
    block = RecordBlock.parse(bytearray(b"".join(map(encode_record, own))))
    by_arrays = outcome(lambda: schedule.redirect(queue, block, is_ack=is_ack))
    assert outcome(lambda: schedule.redirect_records(queue, own, is_ack=is_ack)) == by_arrays


numbers = st.one_of(
    st.integers(-1, NOW_MS + DELAY_MS_MAX).map(str),
    st.integers(-3_000, 3_000).map(lambda ahead_ms: str(NOW_MS + ahead_ms)),
    st.sampled_from(["", "x", "1" * 15, "1" * 16, "\u0663"]),
)
timer_properties = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys((TIMER_OUT_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS), numbers),
        TIMER_ROLL_TIMES: st.just("1"),
        TIMER_DEL_UNIQKEY: st.sampled_from(["T+K", "K", "\0K"]),
        REAL_TOPIC: st.sampled_from(["T", "rmq_sys_REVIVE_LOG_c"]),
        UNIQ_KEY: texts,
    },
)
timer_records = st.builds(
    Record,
    st.just("rmq_sys_wheel_timer"),
    st.just(0),
    st.just(b"body"),
    timer_properties,
    store_timestamp_ms=st.integers(NOW_MS, NOW_MS + 1_000),
    prepared_transaction_offset=st.sampled_from([0, ~5]),
)


def fields_of(found: TimerRecords) -> tuple[object, ...]:
    return found.due_ms.tolist(), found.is_message.tolist(), found.marks


@given(st.lists(timer_records, min_size=1, max_size=FEW_RECORDS))
def test_few_timer_records_have_the_times_and_marks_of_many(drawn: list[Record]) -> None:
    few = [encode_record(each) for each in drawn]
    plain = encode_record(Record("rmq_sys_wheel_timer", 0, b"", {TIMER_OUT_MS: "5"}))
    many = RecordBlock.parse(b"".join([*few, *[plain] * FEW_RECORDS]))
    found, whole = read_times(RecordBlock.parse(b"".join(few))), read_times(many)
    first = TimerRecords(whole.due_ms[: len(few)], whole.is_message[: len(few)], whole.marks)
    assert fields_of(found) == fields_of(first)
    assert (found.due_ms.dtype.name, found.is_message.dtype.name) == ("int64", "bool")

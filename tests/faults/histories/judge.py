"""The judge of a history: lost, duplicate, phantom, half, wrong, moved, reordered, early, late.

Other kinds: `partial` batches; transactions with no end or `several` ends; `reopened`, if a
producer is asked after the end of its transaction; queue locks with `two owners`, or `denied` to
all clients; held pulls that slept on: `unwoken`.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tests.faults.histories.events import (
    FINAL,
    AllOrNone,
    Calm,
    Cleaned,
    CleanedLog,
    Delivery,
    Event,
    ExactlyOne,
    Fault,
    Half,
    Held,
    Lock,
    Outcome,
    Send,
    Stage,
)

# A due message and a waiting pull are late after this, while nothing hinders the broker.
LATE_MS_MAX = 5_000

Sends = Mapping[str, Send]
# The allowed counts of a half message's deliveries, and of its check-backs.
FATES = {
    Stage.PREPARING: {(0, 0), (0, 1)},
    Stage.PREPARED: {(0, 1)},
    Stage.COMMITTING: {(1, 0), (0, 1)},
    Stage.COMMITTED: {(1, 0)},
    Stage.ROLLING_BACK: {(0, 0), (0, 1)},
    Stage.GONE: {(0, 0)},
}


def judged(sends: Sends, deliveries: Sequence[Delivery], events: Sequence[Event]) -> list[Fault]:
    """Returns every fault, sorted by kind."""
    found = _found(deliveries, events)
    faults = [event for event in events if isinstance(event, Fault)]
    faults += _lost(sends, deliveries, found)
    faults += _sets(events, found)
    faults += _halves([event for event in events if isinstance(event, Half)], found)
    faults += _late(sends, deliveries, [event for event in events if isinstance(event, Calm)])
    faults += _unwoken(sends, [event for event in events if isinstance(event, Held)])
    faults += _locks([event for event in events if isinstance(event, Lock)])
    readings: dict[tuple[str, str, int], list[Delivery]] = defaultdict(list)
    for delivery in deliveries:
        readings[delivery.reader, delivery.topic, delivery.queue_id].append(delivery)
        faults += _of_delivery(sends.get(delivery.message_id), delivery)
    for reading in readings.values():
        faults += _duplicates(sends, reading)
        faults += _reordered(sends, reading)
    return sorted(faults)


def _found(deliveries: Sequence[Delivery], events: Sequence[Event]) -> Counter[str]:
    """Counts each message's deliveries at the end, or before its queue or log was cleaned."""
    cleaned: dict[tuple[str, int], int] = {}
    log_begin = max((each.log_begin for each in events if isinstance(each, CleanedLog)), default=0)
    for event in events:
        if isinstance(event, Cleaned):
            place = event.topic, event.queue_id
            cleaned[place] = max(event.queue_offset, cleaned.get(place, 0))
    places = {
        (each.topic, each.queue_id, each.queue_offset): each.message_id
        for each in deliveries
        if each.reader == FINAL
        or each.queue_offset < cleaned.get((each.topic, each.queue_id), 0)
        or 0 < each.log_end <= log_begin
    }
    return Counter(places.values())


def _lost(sends: Sends, deliveries: Sequence[Delivery], found: Counter[str]) -> Iterator[Fault]:
    for send in sends.values():
        if send.outcome is Outcome.ACKED and send.message_id not in found:
            place = f"{send.topic}/{send.queue_id} at {send.queue_offset}"
            yield Fault("lost", f"{send.message_id} was acknowledged in {place}, and is not there")
    for delivery in deliveries:
        if delivery.reader != FINAL and delivery.message_id not in found:
            yield Fault("lost", f"{delivery.message_id} was read once, and is not there any more")


def _sets(events: Sequence[Event], found: Counter[str]) -> Iterator[Fault]:
    for event in events:
        if isinstance(event, ExactlyOne):
            there = [each for each in event.message_ids if each in found]
            if not there:
                yield Fault("lost", f"none of {event.message_ids} is there")
            elif len(there) > 1:
                yield Fault("several", f"{there} are there, of which one excludes the others")
        elif isinstance(event, AllOrNone):
            missing = [each for each in event.message_ids if each not in found]
            if 0 < len(missing) < len(event.message_ids):
                yield Fault("partial", f"of a batch {missing} are missing")


def _halves(halves: Sequence[Half], found: Counter[str]) -> Iterator[Fault]:
    """Yields half messages that are not, by their stage, committed once, invisible or checked."""
    for half in halves:
        shown, name = found[half.message_id], f"half message {half.message_id}"
        if (shown, half.asked) in FATES[half.stage]:
            continue
        if shown + half.asked > 1:
            seen = f"is there {shown} times, and asked after {half.asked} times"
            yield Fault("several", f"{name}, which is {half.stage.value}, {seen}")
        elif shown:
            yield Fault("half", f"{name} is there, and was {half.stage.value}")
        elif half.asked:
            yield Fault("reopened", f"{name} is asked after, and was {half.stage.value}")
        else:
            yield Fault("lost", f"{name} is neither there nor asked after, {half.stage.value}")


def _late(sends: Sends, deliveries: Sequence[Delivery], calm: Sequence[Calm]) -> Iterator[Fault]:
    for delivery in deliveries:
        send = sends.get(delivery.message_id)
        if send is None or not send.punctual:
            continue
        for span in calm:
            latest_ms = max(send.due_ms, span.from_ms) + LATE_MS_MAX
            if span.from_ms <= delivery.at_ms < span.to_ms and delivery.at_ms > latest_ms:
                late_ms = delivery.at_ms - send.due_ms
                yield Fault("late", f"{send.message_id} came {late_ms} ms behind its time")


def _unwoken(sends: Sends, pulls: Sequence[Held]) -> Iterator[Fault]:
    by_queue: dict[tuple[str, int], list[Send]] = defaultdict(list)
    for send in sends.values():
        if send.queue_offset is not None and send.answered_ms is not None:
            by_queue[send.topic, send.queue_id].append(send)
    for pull in pulls:
        for send in by_queue[pull.topic, pull.queue_id]:
            assert send.queue_offset is not None
            assert send.answered_ms is not None
            is_wanted = send.queue_offset >= pull.queue_offset
            if is_wanted and send.answered_ms + LATE_MS_MAX < pull.to_ms:
                held_ms = pull.to_ms - max(send.answered_ms, pull.from_ms)
                yield Fault("unwoken", f"a pull was held for {held_ms} ms after {send.message_id}")


def _locks(locks: Sequence[Lock]) -> Iterator[Fault]:
    by_queue: dict[tuple[str, str, int], list[Lock]] = defaultdict(list)
    for lock in locks:
        by_queue[lock.group, lock.topic, lock.queue_id].append(lock)
    for queue, several in by_queue.items():
        held = sorted((each for each in several if each.granted), key=lambda each: each.from_ms)
        for first, second in itertools.combinations(held, 2):
            if first.client != second.client and second.from_ms < first.to_ms:
                clients = f"{first.client} and {second.client}"
                yield Fault("two owners", f"{clients} hold {queue} at {second.from_ms}")
        for lock in several:
            is_free = not any(
                each.client != lock.client and each.from_ms <= lock.from_ms <= each.to_ms
                for each in held
            )
            if not lock.granted and is_free:
                yield Fault("denied", f"{lock.client} did not get {queue} at {lock.from_ms}")


def _of_delivery(send: Send | None, delivery: Delivery) -> Iterator[Fault]:
    name = delivery.message_id
    place = (delivery.topic, delivery.queue_id, delivery.queue_offset)
    if send is None:
        yield Fault("phantom", f"{name!r} at {place} was never sent")
        return
    if send.outcome is Outcome.REFUSED:
        yield Fault("phantom", f"{name} at {place} had been refused")
    if send.outcome is Outcome.HIDDEN:
        yield Fault("half", f"{name} at {place} is a half message, or was taken back")
    if send.body_hash != delivery.body_hash:
        found, expected_hash = delivery.body_hash, send.body_hash
        yield Fault("wrong", f"{name} at {place} is {found}, and was sent as {expected_hash}")
    expected = (send.topic, send.queue_id, send.queue_offset)
    is_placed = send.queue_offset is not None and send.queue_id >= 0
    if send.outcome is Outcome.ACKED and is_placed and place != expected:
        yield Fault("moved", f"{name} is at {place}, and was acknowledged at {expected}")
    if place[0] != send.topic or (send.queue_id >= 0 and place[1] != send.queue_id):
        yield Fault("moved", f"{name} is in {place[:2]}, and was sent to {expected[:2]}")
    if delivery.at_ms < send.due_ms:
        yield Fault("early", f"{name} came {send.due_ms - delivery.at_ms} ms before its time")


def _duplicates(sends: Sends, reading: Sequence[Delivery]) -> Iterator[Fault]:
    counts = Counter(delivery.message_id for delivery in reading)
    for message_id, count in counts.items():
        tries = sends[message_id].tries if message_id in sends else 1
        if count > tries:
            yield Fault("duplicate", f"{message_id} was read {count} times")


def _reordered(sends: Sends, reading: Sequence[Delivery]) -> Iterator[Fault]:
    """Yields messages before an earlier one of their sender, or before one that had ended first."""
    known = [sends[each.message_id] for each in reading if each.message_id in sends]
    ordered = [send for send in known if not send.unordered]
    earliest_end: float = float("inf")
    for send in reversed(ordered):
        if earliest_end < send.begun:
            yield Fault("reordered", f"{send.message_id} lies before one that had ended before it")
        earliest_end = min(earliest_end, float("inf") if send.ended is None else send.ended)
    latest: dict[str, Send] = {}
    for send in ordered:
        before = latest.get(send.sender)
        if before is not None and send.begun < before.begun:
            sentence = f"{send.message_id} lies behind {before.message_id}, and was sent before it"
            yield Fault("reordered", sentence)
        latest[send.sender] = send
    offsets = [delivery.queue_offset for delivery in reading]
    for low, high in itertools.pairwise(offsets):
        if high <= low:
            yield Fault("reordered", f"offset {high} was read after {low}")

"""The way of a message through its groups."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from rocketpy_broker.messages.stored import Message
from rocketpy_broker.runtime.time_format import ms_of_time, time_of_ms
from rocketpy_broker.server.http.api.calls import RefusedCallError
from rocketpy_broker.server.http.console.message_views import messages_of
from rocketpy_broker.server.http.console.renderer import counted, part, time_shown
from rocketpy_broker.server.http.console.request import PageRequest
from rocketpy_broker.services.receipts.handle import pop_retry_topic
from rocketpy_broker.store.delay_levels import level_of
from rocketpy_proto.model import (
    DEAD_LETTER_PREFIX,
    HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    WAITING_TOPICS,
    dead_letter_topic,
    retry_topic,
)
from rocketpy_proto.record.properties import DELAY, REAL_TOPIC, RETRY_TOPIC, TIMER_OUT_MS
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2, transactions_pb2

GROUPS_COUNT, COPIES_COUNT = 10, 64


@dataclass(frozen=True, slots=True)
class Step:
    """A sentence about a message, which ends with a link: its address `link`, its text `name`."""

    text: str
    link: str = ""
    name: str = ""


@dataclass
class Trace:
    """The state of a message, and its way through a page of groups, each with its steps."""

    state: list[Step] = field(default_factory=list)
    groups: dict[str, list[Step]] = field(default_factory=dict)
    has_more: bool = False


@dataclass(frozen=True, slots=True)
class _Lookup:
    """Look-ups of copies of one message, by its unique id; without one it finds none."""

    request: PageRequest
    unique_id: str
    # The first offset of the message's queue.
    min_offset: int

    async def copies(self, topic: str) -> list[Message]:
        """Returns the copies in a topic, the oldest first."""
        if not self.unique_id:
            return []
        asked = admin_pb2.QueryMessageRequest(
            topic=topic, key=self.unique_id, count_max=COPIES_COUNT
        )
        answer = await self.request.found("Admin/QueryMessage", asked)
        if answer is None:
            return []
        found = await asyncio.to_thread(lambda: [each for each, _ in messages_of(answer)])
        # A key of another message may be equal to the id.
        return [each for each in found if each.msg_id == self.unique_id]

    async def offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Returns a group's next offset in a queue; None without one. Raises RefusedCallError."""
        queue = broker_pb2.TopicQueue(topic=topic, queue_id=queue_id)
        asked = broker_pb2.QueryConsumerOffsetsRequest(consumer_group=group, queues=[queue])
        (found,) = (await self.request.call("Broker/QueryConsumerOffsets", asked)).offsets
        return found.offset if found.status.code == 0 else None

    async def level_ms(self) -> list[int]:
        """Returns the delays of the delay levels."""
        answer = await self.request.call("Admin/GetBrokerInfo", admin_pb2.GetBrokerInfoRequest())
        return list(answer.delay_levels_ms)


async def trace_of(
    request: PageRequest, topic: str, message: Message, min_offset: int, after: str
) -> Trace:
    """Returns the way of a message that was read from `topic`, with groups after `after`.

    `min_offset` is the first offset of its queue.
    """
    has_id = message.msg_id != message.offset_msg_id
    lookup = _Lookup(request, message.msg_id if has_id else "", min_offset)
    trace = Trace(await _state(lookup, topic, message))
    if topic in WAITING_TOPICS:
        return trace
    listed = admin_pb2.ListTopicGroupsRequest(topic=topic, after=after, count_max=GROUPS_COUNT)
    answer = await request.found("Admin/ListTopicGroups", listed)
    if answer is None:
        return trace
    trace.has_more = answer.has_more
    waiting = await lookup.copies(SCHEDULE_TOPIC)
    for group in answer.groups:
        try:
            trace.groups[group] = await _steps(lookup, topic, message, group, waiting)
        except RefusedCallError as error:
            trace.groups[group] = [Step(error.remark)]
    if trace.groups and not has_id:
        text = "It has no unique id, so its retries and dead letters are not found here."
        trace.state.append(Step(text))
    return trace


# --- The message itself ---


async def _state(lookup: _Lookup, topic: str, message: Message) -> list[Step]:
    properties = message.properties
    target = properties.get(REAL_TOPIC, "")
    if topic in WAITING_TOPICS:
        copies = await lookup.copies(target) if target else []
        # An earlier copy with the same id is no delivery of this message.
        copies = [each for each in copies if each.commit_log_offset > message.commit_log_offset]
        if copies:
            return [Step("It has been delivered:", _place(copies[0]), f"message in {target}")]
        if topic == HALF_TOPIC:
            return [await _half(lookup, target)]
        due = await _due(lookup, message)
        return [Step(f"It waits until {due} for its topic", _topic(target), target)]
    if topic.startswith(DEAD_LETTER_PREFIX):
        group = topic.removeprefix(DEAD_LETTER_PREFIX)
        link = f"/groups/{part(group)}/dead-letters/{message.queue_offset}"
        steps = [Step("It is a", link, f"dead letter of {group}")]
    elif topic.startswith(RETRY_PREFIX):
        group = topic.removeprefix(RETRY_PREFIX)
        steps = [Step(f"It is retry {message.reconsume_times} of {group}.")]
    else:
        return []
    origin = properties.get(RETRY_TOPIC, "")
    if origin and lookup.unique_id:
        link = f"{_topic(origin)}/messages?key={part(lookup.unique_id)}"
        steps.append(Step("Its first send was to", link, origin))
    return steps


async def _half(lookup: _Lookup, target: str) -> Step:
    asked = transactions_pb2.ListTransactionsRequest(transaction_id=lookup.unique_id, count_max=1)
    answer = await lookup.request.found("Transactions/ListTransactions", asked)
    text = f"It is the half message of a transaction for {target}"
    if answer is None:
        return Step(f"{text}.")
    if lookup.unique_id and answer.transactions:
        return Step(f"{text}, which is open:", "/transactions", "open transactions")
    return Step(f"{text}, which is rolled back or abandoned.")


async def _due(lookup: _Lookup, message: Message) -> str:
    """Returns the time of a waiting message's delivery."""
    properties = message.properties
    timer = properties.get(TIMER_OUT_MS, "")
    if timer.isdecimal():
        return time_shown(time_of_ms(int(timer[:18])))
    delays, level = await lookup.level_ms(), level_of(properties.get(DELAY, ""))
    if not (delays and level):
        return "a time that is unknown"
    delay_ms = delays[min(level, len(delays)) - 1]
    return time_shown(time_of_ms(ms_of_time(message.store_timestamp) + delay_ms))


# --- Its groups ---


async def _steps(
    lookup: _Lookup, topic: str, message: Message, group: str, waiting: list[Message]
) -> list[Step]:
    """Returns what a group has done with a message. Raises RefusedCallError."""
    offset = await lookup.offset(group, topic, message.queue_id)
    letters = await lookup.copies(dead_letter_topic(group))
    if letters and topic != dead_letter_topic(group):
        letter = letters[-1]
        link = f"/groups/{part(group)}/dead-letters/{letter.queue_offset}"
        attempts = counted(letter.reconsume_times, "attempt")
        after = f", after {attempts}" if letter.reconsume_times else ""
        return [Step(f"{group} did not consume it{after}:", link, f"dead letter of {group}")]
    for name in (retry_topic(group), pop_retry_topic(group, topic)):
        steps = [] if name == topic else await _retries(lookup, group, name, waiting)
        if steps:
            return steps
    if offset is None:
        return [Step(f"{group} has no offset in this queue.")]
    if offset <= message.queue_offset:
        ahead = message.queue_offset - max(offset, lookup.min_offset)
        older = counted(ahead, "older message is", "older messages are")
        next_one = f"{older} before it." if ahead else "It is the next one."
        return [Step(f"{group} has not consumed it yet. {next_one}")]
    return [Step(f"{group} has consumed it.")]


async def _retries(lookup: _Lookup, group: str, topic: str, waiting: list[Message]) -> list[Step]:
    """Returns the retries of a message in a group's retry topic; empty without one."""
    delivered = await lookup.copies(topic)
    done = max((each.reconsume_times for each in delivered), default=0)
    next_ones = [
        each
        for each in waiting
        if each.properties.get(REAL_TOPIC) == topic and each.reconsume_times > done
    ]
    if next_ones:
        due = await _due(lookup, next_ones[-1])
        count = f"retried {_times(done)}" if done else "sent it back"
        return [Step(f"{group}: {count}; retry {done + 1} waits until {due}.")]
    if not delivered:
        return []
    newest = max(delivered, key=lambda each: (each.reconsume_times, each.commit_log_offset))
    offset = await lookup.offset(group, topic, newest.queue_id)
    text = f"{group}: retried {_times(max(done, 1))}; "
    if offset is not None and offset > newest.queue_offset:
        return [Step(f"{text}it has consumed the", _place(newest), "last retry")]
    return [Step(f"{text}a consumer has not taken the", _place(newest), "last retry")]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _topic(topic: str) -> str:
    return f"/topics/{part(topic)}"


def _place(message: Message) -> str:
    """Returns the address of a message's page."""
    queue = f"{_topic(message.topic)}/queues/{message.queue_id}"
    return f"{queue}/messages/{message.queue_offset}"

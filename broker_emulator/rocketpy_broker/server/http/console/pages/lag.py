"""Reasons why a group lags, in words, and advice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rocketpy_broker.server.http.console.renderer import count_text, counted, duration_text
from rocketpy_broker.server.http.console.trends import MINUTE_MS, Point
from rocketpy_proto.model import retry_topic
from rocketpy_proto.rocketpy.v1 import groups_pb2

# A member that consumes commits every few seconds.
QUIET_MS, QUERY_QUIET_MS = 60_000, 600_000
# Topics that are named.
NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class GroupState:
    """The facts about a group: answers of the broker, and its lags minute by minute."""

    group: str
    details: groups_pb2.GetGroupResponse
    members: groups_pb2.ConnectionsResponse
    topics: groups_pb2.ListGroupTopicsResponse
    lags: Sequence[Point]
    now_ms: int

    @property
    def retry_topic(self) -> str:
        """The topic of the group's retries."""
        return retry_topic(self.group)

    @property
    def lagging(self) -> list[groups_pb2.GroupTopic]:
        """Topics with lag, the largest first, without the group's retry topic."""
        found = [each for each in self.topics.topics if each.lag and each.topic != self.retry_topic]
        return sorted(found, key=lambda each: -each.lag)

    @property
    def query_age_ms(self) -> int | None:
        """The time since the last progress of a Spark query; None without a query."""
        if not self.details.HasField("micro_batch"):
            return None
        return self.now_ms - self.details.micro_batch.commit_timestamp_ms


@dataclass(frozen=True, slots=True)
class Finding:
    """A fact that explains lag, and the next step."""

    text: str
    advice: str


def findings(state: GroupState) -> list[Finding]:
    """Returns what explains the group's lag, the most likely reason first."""
    found = [*_readers(state), *_of_retries(state)]
    if state.details.HasField("config") and not state.details.config.consume_enable:
        text = "The group may not consume: consumeEnable is off."
        found.insert(0, Finding(text, "Switch it on with Change."))
    return found


def _readers(state: GroupState) -> Iterator[Finding]:
    lagging = state.lagging
    if not lagging:
        return
    if state.details.member_count:
        yield from _of_members(state, lagging)
    elif state.query_age_ms is not None:
        yield _of_query(state, state.query_age_ms)
    else:
        yield _without_members(state, lagging)
    yield from _trend(state)


def _without_members(state: GroupState, lagging: Sequence[groups_pb2.GroupTopic]) -> Finding:
    last_ms = max(each.last_commit_timestamp_ms for each in lagging)
    if state.now_ms - last_ms <= QUIET_MS:
        return Finding(
            "The group has no members, and a program commits its progress.",
            "It reads without a membership, as `rocketpy message pull` does. Look at its log.",
        )
    return Finding(
        "The group has no members: nothing reads for it.",
        "Start a client with this group, or find out why it stopped. Delete an unused group.",
    )


def _of_query(state: GroupState, age_ms: int) -> Finding:
    host = state.details.micro_batch.driver_host or "its host"
    if age_ms > QUERY_QUIET_MS:
        return Finding(
            f"The Spark query has reported no progress for {duration_text(age_ms)}.",
            f"Look at the query on {host}: it has stopped, or one batch takes that long.",
        )
    return Finding(
        "A Spark query reads for the group; it is no member. "
        f"Its last micro-batch ended {duration_text(age_ms)} ago.",
        "Lag between two micro-batches is normal. If it grows, raise the query's limits.",
    )


def _of_members(state: GroupState, lagging: Sequence[groups_pb2.GroupTopic]) -> Iterator[Finding]:
    other = [each for each in lagging if not each.is_subscribed]
    if other:
        wanted = ", ".join(sorted(each.topic for each in state.members.consumer_data.subscriptions))
        yield Finding(
            f"The members do not subscribe to {_named(other)}.",
            f"They subscribe to: {wanted[:200] or 'nothing'}. Correct the subscription, or reset "
            "the group to the latest offset of a topic that it no longer needs.",
        )
    read = [each for each in lagging if each.is_subscribed]
    partly = [each for each in read if 0 < each.committed_queue_count < each.queue_count]
    for each in partly[:NAMED_MAX]:
        missing = each.queue_count - each.committed_queue_count
        queues = counted(missing, "queue")
        yield Finding(
            f"{queues} of topic {each.topic} without an owner: no member has read there yet.",
            "Wait until the members have shared the queues. If that does not help, look for a "
            "member that hangs, and restart it.",
        )
    quiet = [each for each in read if _is_quiet(state, each)]
    if quiet:
        newest_ms = max(each.last_commit_timestamp_ms for each in quiet)
        since = (
            f"for {duration_text(state.now_ms - newest_ms)}"
            if newest_ms
            else "since the broker's start"
        )
        yield Finding(
            f"The members are connected, and have committed nothing in {_named(quiet)} {since}.",
            "Consumption has stopped. Look at the clients' logs: a listener hangs or fails.",
        )
    busiest = max((each.queue_count for each in read), default=0)
    if 0 < busiest < state.details.member_count:
        idle = state.details.member_count - busiest
        yield Finding(
            f"{counted(idle, 'member')} more than queues: a queue has one member at a time.",
            "Give the topic more queues to use all members.",
        )


def _is_quiet(state: GroupState, topic: groups_pb2.GroupTopic) -> bool:
    return state.now_ms - topic.last_commit_timestamp_ms > QUIET_MS


def _trend(state: GroupState) -> Iterator[Finding]:
    known = [each for each in state.lags if each.value >= 0]
    if len(known) < 2 or not (state.details.member_count or state.query_age_ms is not None):
        return
    first, last = known[0].value, known[-1].value
    minutes = round((known[-1].end_ms - known[0].end_ms) / MINUTE_MS)
    span = f"from {count_text(first)} to {count_text(last)} in {counted(minutes, 'minute')}"
    if last > first:
        yield Finding(
            f"The lag grows: {span}.",
            "Messages arrive faster than they are consumed. Add members, up to the number of "
            "queues, or make the consumption of a message faster.",
        )
    elif last < first:
        yield Finding(f"The lag falls: {span}.", "The group catches up. You need not do anything.")


def _of_retries(state: GroupState) -> Iterator[Finding]:
    count = state.details.retry_message_count
    if count:
        yield Finding(
            f"{counted(count, 'retry waits', 'retries wait')}: the consumption of "
            f"{'a message' if count == 1 else 'messages'} failed.",
            "Look at the clients' logs. After its last retry a message is a dead letter.",
        )


def _named(topics: Sequence[groups_pb2.GroupTopic]) -> str:
    shown = ", ".join(each.topic for each in topics[:NAMED_MAX])
    left = len(topics) - NAMED_MAX
    more = f" and {left} more" if left > 0 else ""
    return f"{shown}{more} ({counted(sum(each.lag for each in topics), 'message')})"

"""Alerts of the overview: the broker's faults and their remedies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from rocketpy_broker.server.http.console.renderer import (
    bytes_text,
    counted,
    duration_text,
    part,
)
from rocketpy_proto.rocketpy.v1 import admin_pb2, transactions_pb2

DISK_SHARE_MAX = 0.85
BEHIND_BYTES_MAX = 64 << 20
STAGED_SHARE_MAX = 0.8
LATE_MS = 60_000
# RocketMQ sends the first check of a transaction after 6 s.
OPEN_MS = 600_000
GROUPS_MAX = 5
# Minutes in which the lag of a group without members has not fallen.
MINUTES = 10


@dataclass(frozen=True, slots=True)
class Alert:
    """A fault, the next step, and a link to the page for it, which may be that of a group."""

    fault: str
    advice: str
    path: str
    page: str
    group: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """The answers of the contract from which alerts are made."""

    info: admin_pb2.GetBrokerInfoResponse
    status: admin_pb2.GetBrokerStatusResponse
    counters: admin_pb2.GetStoreStatisticsResponse
    history: admin_pb2.GetHistoryResponse
    transactions: transactions_pb2.ListTransactionsResponse
    now_ms: int


def alerts(facts: Facts) -> list[Alert]:
    """Returns all alerts, the worst faults first."""
    return [*_of_disk(facts), *_of_recovery(facts), *_of_work(facts), *_of_groups(facts)]


def _of_disk(facts: Facts) -> Iterator[Alert]:
    if facts.info.refusal:
        yield _store(
            f"The broker refuses messages: {facts.info.refusal}.",
            "Producers get errors until this ends. The broker's log has the cause.",
        )
    size, free = facts.status.disk_bytes, facts.status.disk_bytes_free
    if size and 1 - free / size > DISK_SHARE_MAX:
        yield _store(
            f"The disk is nearly full: {bytes_text(free)} of {bytes_text(size)} are free.",
            "Remove expired segments, free other space, or keep messages for a shorter time.",
        )
    staged, staged_max = facts.counters.staged_bytes, facts.counters.staged_bytes_max
    if staged > STAGED_SHARE_MAX * staged_max:
        yield _store(
            f"Staged batches take {bytes_text(staged)} of {bytes_text(staged_max)}.",
            "Stop the jobs that write, or let them commit: at the limit their batches fail.",
        )


def _of_recovery(facts: Facts) -> Iterator[Alert]:
    status = facts.status
    if status.recovery_damage_count:
        places = counted(status.recovery_damage_count, "damaged or doubtful place")
        yield _store(
            f"The last start found {places} in the store.",
            "The broker's log names them. Check the disk, and restore a backup if messages are "
            "missing.",
        )
    if status.quarantined_file_count:
        yield _store(
            f"The quarantine has {counted(status.quarantined_file_count, 'file')}.",
            "They are damaged parts of the store. The broker never removes them: look at them, "
            "then move them away.",
        )
    if facts.counters.corrupt_record_count:
        records = counted(facts.counters.corrupt_record_count, "damaged record")
        yield _store(
            f"Readers found {records} since the last start.",
            "Consumers do not get them. Check the disk, and stop the broker for a check of the "
            "store: `rocketpy store check`.",
        )


def _of_work(facts: Facts) -> Iterator[Alert]:
    counters, status = facts.counters, facts.status
    if counters.flush_behind_bytes > BEHIND_BYTES_MAX:
        yield _store(
            f"{bytes_text(counters.flush_behind_bytes)} of the log are not on disk yet.",
            "The disk is too slow for the producers. A power cut would lose these messages.",
        )
    if counters.dispatch_behind_bytes > BEHIND_BYTES_MAX:
        yield _store(
            f"{bytes_text(counters.dispatch_behind_bytes)} of the log are not in their queues yet.",
            "Consumers get these messages late. The broker needs more CPU time.",
        )
    dues = [each.due_timestamp_ms for each in status.delay_levels if each.due_timestamp_ms]
    dues += [status.timer_due_timestamp_ms] if status.timer_due_timestamp_ms else []
    late_ms = facts.now_ms - min(dues, default=facts.now_ms)
    if late_ms > LATE_MS:
        yield _store(
            f"Delayed messages are late by {duration_text(late_ms)}.",
            "The broker delivers them as fast as it can; its log has errors, if there are any.",
        )
    oldest = next(iter(facts.transactions.transactions), None)
    open_ms = facts.now_ms - oldest.born_timestamp_ms if oldest else 0
    if open_ms > OPEN_MS:
        yield Alert(
            f"A transaction is open for {duration_text(open_ms)}.",
            "The broker asks its producers: are they running, and do they answer checks?",
            "/transactions",
            "Transactions",
        )


def _of_groups(facts: Facts) -> Iterator[Alert]:
    left = filter(_is_left, facts.history.groups)
    for group in islice(left, GROUPS_MAX):
        name = group.consumer_group
        yield Alert(
            f"The group {name} has no members, and "
            f"{counted(group.lag, 'message waits', 'messages wait')} for it.",
            "Its page says whether a program reads for it. If none does, start its consumers.",
            f"/groups/{part(name)}",
            "Group",
            name,
        )


def _is_left(group: admin_pb2.GroupHistory) -> bool:
    """True if a group has no members, and its lag does not fall.

    A Spark query is no member; the lag of a running one falls.
    """
    known = [lag for lag in group.lags[-MINUTES:] if lag >= 0]
    return group.lag > 0 and not group.member_count and known == sorted(known)


def _store(fault: str, advice: str) -> Alert:
    return Alert(fault, advice, "/store", "Store")

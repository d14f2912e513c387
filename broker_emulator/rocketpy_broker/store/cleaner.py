"""Selection of log segments to delete, by age, hour and disk usage.

The cleaner only decides; the store removes the files. Age is measured by wall time, which may jump.
A segment expires only after two clock readings confirm its age. The readings are `confirm_ms` of
monotonic time apart, and wall time has advanced by the same amount between them. A clock that is
set forward by 100 days therefore deletes nothing at once.

State is in memory only: a restart begins with a new first reading. `waits` reports the reasons for
which segments stay.
Source: CleanCommitLogService, docs/design/storage.md section 10.5.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.guarded_clock import StabilityTimer
from rocketpy_proto.counts import counted

logger = logging.getLogger(__name__)

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class CleanPolicy:
    """Settings of the cleaner, with RocketMQ's defaults. Ratios are of the used share of the disk.

    Only `clean_file_forcibly_enable` differs from RocketMQ: by default, a full disk stops sends and
    no message is removed before its time.
    """

    reserved_ms: int = 72 * HOUR_MS
    delete_when_hours: frozenset[int] = frozenset({4})
    confirm_ms: int = HOUR_MS
    clean_file_forcibly_enable: bool = False
    used_ratio_max: float = 0.75
    clean_forcibly_ratio: float = 0.85
    warning_level_ratio: float = 0.90
    files_per_pass_max: int = 10


@dataclass(frozen=True, slots=True)
class CleanDecision:
    """The number of oldest segments to delete now, and whether the disk is too full for sends."""

    segment_count: int
    disk_full: bool


class WaitReason(Enum):
    """The reason for which a segment stays; see WaitingSegments of rocketpy/v1/admin.proto."""

    AGE = "AGE"
    CLOCK = "CLOCK"
    NEEDED = "NEEDED"
    HOUR = "HOUR"
    BATCH = "BATCH"


@dataclass(frozen=True, slots=True)
class SegmentWait:
    """Segments that stay.

    `until_ms` is the time from which the first may be deleted, None if unknown.
    """

    reason: WaitReason
    segment_count: int
    until_ms: int | None = None


def used_ratio(folder: Path) -> float:
    """Returns the used share of the disk of `folder`, computed as df does."""
    status = os.statvfs(folder)
    used = status.f_blocks - status.f_bfree
    total = used + status.f_bavail
    return used / total if total else 0.0


class Cleaner:
    """The cleaner of one store. `disk_used_ratio` returns the used share of its disk."""

    def __init__(
        self, policy: CleanPolicy, clock: Clock, disk_used_ratio: Callable[[], float]
    ) -> None:
        self.policy = policy
        self._clock = clock
        self._disk_used_ratio = disk_used_ratio
        self._stability = StabilityTimer()

    def decide(self, changed_ms: Sequence[float], *, manual: bool) -> CleanDecision:
        """Returns the decision for segments, oldest first, last written at `changed_ms`.

        The last segment always stays. `manual` deletes expired segments at any hour.
        """
        policy = self.policy
        ratio = self._disk_used_ratio()
        disk_full = ratio > policy.warning_level_ratio
        candidates = changed_ms[:-1][: policy.files_per_pass_max]
        now_ms = self._clock.now_ms()
        agreed = self._reading_agrees(now_ms)
        if policy.clean_file_forcibly_enable and ratio > policy.clean_forcibly_ratio:
            if candidates:
                logger.warning(
                    "disk usage is %.0f %%: removing %s early",
                    100 * ratio,
                    counted(len(candidates), "log segment"),
                )
            return CleanDecision(len(candidates), disk_full)
        if not (manual or ratio > policy.used_ratio_max or self._is_hour(now_ms)):
            return CleanDecision(0, disk_full)
        count = self._expired_count(candidates, now_ms)
        if count and not agreed:
            expired = counted(count, "log segment has", "log segments have")
            logger.info("%s expired, but the clock may be wrong; nothing is removed yet", expired)
            return CleanDecision(0, disk_full)
        return CleanDecision(count, disk_full)

    def _expired_count(self, changed_ms: Sequence[float], now_ms: int) -> int:
        """Returns the number of oldest segments that have reached the required age."""
        expired = [now_ms - changed >= self.policy.reserved_ms for changed in changed_ms]
        return expired.index(False) if False in expired else len(expired)

    def waits(
        self, changed_ms: Sequence[float], safe_count: int, *, manual: bool
    ) -> list[SegmentWait]:
        """Returns the reasons for which segments stay, as `decide` would see them now.

        The last segment is not included. `safe_count` is the number of oldest segments that are no
        longer needed.
        """
        policy, now_ms = self.policy, self._clock.now_ms()
        candidates = changed_ms[:-1]
        agreed_ms = self._stability.read(now_ms, self._clock.monotonic_ms())
        ratio = self._disk_used_ratio()
        is_forced = policy.clean_file_forcibly_enable and ratio > policy.clean_forcibly_ratio
        expired = len(candidates) if is_forced else self._expired_count(candidates, now_ms)
        free = min(expired, safe_count)
        until_ms: int | None = now_ms
        reason = WaitReason.BATCH
        if not is_forced and agreed_ms < policy.confirm_ms:
            reason, until_ms = WaitReason.CLOCK, now_ms + round(policy.confirm_ms - agreed_ms)
        elif not (is_forced or manual or ratio > policy.used_ratio_max or self._is_hour(now_ms)):
            reason, until_ms = WaitReason.HOUR, self._next_hour_ms(now_ms)
        found = [
            SegmentWait(reason, free, until_ms),
            SegmentWait(WaitReason.NEEDED, expired - free),
        ]
        if expired < len(candidates):
            young_ms = round(candidates[expired] + policy.reserved_ms)
            found.append(SegmentWait(WaitReason.AGE, len(candidates) - expired, young_ms))
        return [wait for wait in found if wait.segment_count > 0]

    def _reading_agrees(self, now_ms: int) -> bool:
        """True if this reading agrees with one made at least `confirm_ms` ago."""
        before_ms = self._stability.step_ms
        agreed_ms = self._stability.read(now_ms, self._clock.monotonic_ms())
        step_ms = self._stability.step_ms
        if before_ms is not None and step_ms is not None and step_ms != before_ms:
            logger.warning("the clock jumped by %d ms", step_ms - before_ms)
        return agreed_ms >= self.policy.confirm_ms

    def _is_hour(self, now_ms: int) -> bool:
        hour = datetime.fromtimestamp(now_ms / 1000).astimezone().hour
        return hour in self.policy.delete_when_hours

    def _next_hour_ms(self, now_ms: int) -> int | None:
        """Returns the start of the next cleaning hour, by local time; None if there is none."""
        hour = (
            datetime.fromtimestamp(now_ms / 1000)
            .astimezone()
            .replace(tzinfo=None, minute=0, second=0, microsecond=0)
        )
        for step in range(1, 25):
            begin = (hour + timedelta(hours=step)).astimezone()
            if begin.hour in self.policy.delete_when_hours:
                return round(begin.timestamp() * 1000)
        return None

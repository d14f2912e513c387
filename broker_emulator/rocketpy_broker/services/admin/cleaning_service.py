"""Scheduled removal of expired log segments.

A nearly full disk stops sends. A thread removes the files, one segment at a time. After a crash,
cleaning continues with the restart.
Source: docs/design/storage.md section 10.5.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.runtime.clock import Clock, sleep
from rocketpy_broker.services.flush.store_files import StoreFiles
from rocketpy_broker.store.cleaner import CleanPolicy, WaitReason
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_proto.counts import counted
from rocketpy_proto.rocketpy.v1 import admin_pb2

logger = logging.getLogger(__name__)
# Pause between two segments, which leaves the disk to other tasks.
PAUSE_MS = 100


def waiting_segments(store: MessageStore, *, manual: bool) -> list[admin_pb2.WaitingSegments]:
    """Returns the reasons why the next cleaning keeps log segments. Raises OSError."""
    return [
        admin_pb2.WaitingSegments(
            reason=wait.reason.value,
            segment_count=wait.segment_count,
            until_timestamp_ms=wait.until_ms or 0,
        )
        for wait in store.segment_waits(manual=manual)
    ]


def expired_count(store: MessageStore) -> int:
    """Returns the number of segments that a cleaning on request may remove now. Raises OSError."""
    waits = store.segment_waits(manual=True)
    return sum(wait.segment_count for wait in waits if wait.reason is WaitReason.BATCH)


def cleaning_rules(policy: CleanPolicy, now_ms: int) -> admin_pb2.CleaningRules:
    """Returns the rules of scheduled cleaning, and the start of its next hour."""
    now = datetime.fromtimestamp(now_ms / 1000).astimezone()
    # Hours of local time: summer time leaves one out, or repeats one.
    hour = now.replace(tzinfo=None, minute=0, second=0, microsecond=0)
    begins = ((hour + timedelta(hours=step)).astimezone() for step in range(1, 26))
    following = (each for each in begins if each.hour in policy.delete_when_hours)
    begin = next(following, None)
    offset = now.utcoffset() or timedelta()
    return admin_pb2.CleaningRules(
        reserved_ms=policy.reserved_ms,
        hours=sorted(policy.delete_when_hours),
        local_offset_minutes=round(offset.total_seconds() / 60),
        used_ratio_max=policy.used_ratio_max,
        is_forcible=policy.clean_file_forcibly_enable,
        clean_forcibly_ratio=policy.clean_forcibly_ratio,
        warning_level_ratio=policy.warning_level_ratio,
        next_timestamp_ms=0 if begin is None else round(begin.timestamp() * 1000),
    )


class CleaningService:
    """Cleaning of one store."""

    def __init__(
        self, store: MessageStore, store_files: StoreFiles, clock: Clock, config: BrokerConfig
    ) -> None:
        self._store = store
        self._store_files = store_files
        self._clock = clock
        self._removing = asyncio.Lock()
        self._delay_ms = config.clean_delay_ms
        self._interval_ms = config.clean_interval_ms

    async def run(self) -> None:
        """Cleans at intervals, by age and by disk space, until cancelled."""
        await sleep(self._clock, self._delay_ms)
        while True:
            try:
                await self.clean(manual=False)
            except OSError as error:
                logger.warning("cleaning failed, the broker tries again: %s", error)
            await sleep(self._clock, self._interval_ms)

    async def clean(self, *, manual: bool) -> int:
        """Removes expired log segments and returns their number. Raises OSError."""
        left, removed = self._store.expired_segment_count(manual=manual), 0
        while left > 0:
            async with self._removing:
                # Other tasks ran: an expired segment may be needed by now, or be removed.
                left = min(left, self._store.expired_segment_count(manual=manual))
                if left > 0:
                    await self._store_files.remove_oldest_segment()
                    left, removed = left - 1, removed + 1
            if left > 0:
                await sleep(self._clock, PAUSE_MS)
        if removed:
            logger.info("removed %s", counted(removed, "expired log segment"))
        return removed

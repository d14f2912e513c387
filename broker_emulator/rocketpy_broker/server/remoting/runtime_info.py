"""A broker's figures under the names of RocketMQ's tools.

This broker has no thread pools for requests, so their queues are empty. Figures that it does not
measure are left out. Source: AdminBrokerProcessor#prepareRuntimeInfo, StoreStatsService,
docs/design/broker_behaviour.md section 9.5, docs/design/cluster.md section 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rocketpy_broker.services.admin.broker_status import TimerBehind
from rocketpy_broker.services.observability.statistics.day_totals import DayTotals
from rocketpy_proto.remoting import PROTOCOL_VERSION
from rocketpy_proto.rocketpy.v1 import admin_pb2

# Names of the latency classes, shortest first.
LATENCY_CLASSES = (
    "<=0ms",
    "0~10ms",
    "10~50ms",
    "50~100ms",
    "100~200ms",
    "200~500ms",
    "500ms~1s",
    "1~2s",
    "2~3s",
    "3~4s",
    "4~5s",
    "5~10s",
    "10s~",
)
# Spans of the rates: 10 s, 60 s and 600 s.
RATES = 3
NO_QUEUES = ("send", "pull", "litePull", "query", "ack")
GIB = 1 << 30
DAY_SECONDS, HOUR_SECONDS, MINUTE_SECONDS = 86_400, 3_600, 60


@dataclass(frozen=True, slots=True)
class RuntimeInfo:
    """The figures of the table."""

    info: admin_pb2.GetBrokerInfoResponse
    status: admin_pb2.GetBrokerStatusResponse
    counters: admin_pb2.GetStoreStatisticsResponse
    days: DayTotals
    put_count: int
    put_bytes: int
    # Store time of the oldest message in ms, -1 without one.
    earliest_ms: int
    begin_send_ms: int
    used_ratio: float
    # The next offset and the end of each delay level's queue.
    schedule_offsets: Mapping[int, tuple[int, int]]
    timer_behind: TimerBehind

    def table(self) -> dict[str, str]:
        """Returns all entries; every value is a text."""
        entries: dict[str, object] = {
            **self._of_broker(),
            **self._of_puts(),
            **self._of_gets(),
            **self._of_log(),
            **self._of_days(),
            **self._of_waiting(),
        }
        return {name: str(value) for name, value in entries.items()}

    def _of_broker(self) -> dict[str, object]:
        return {
            "brokerActive": "true",
            "brokerVersion": PROTOCOL_VERSION,
            "brokerVersionDesc": f"rocketpy_{self.info.version}",
            "bootTimestamp": self.status.start_timestamp_ms,
            "runtime": _runtime(self.status.uptime_ms // 1000),
            "startAcceptSendRequestTimeStamp": self.begin_send_ms,
            "brokerRole": self.status.broker_role,
            "brokerId": self.status.broker_id,
            **self._of_master(),
        }

    def _of_master(self) -> dict[str, object]:
        """Returns a slave's entries about its master, which RocketMQ lacks."""
        master = self.status.master
        if not self.status.HasField("master"):
            return {}
        return {
            "masterAddress": master.address,
            "masterConnected": str(master.connected).lower(),
            "masterLagBytes": master.lag_bytes,
            "masterFailure": master.failure,
        }

    def _of_puts(self) -> dict[str, object]:
        counters = self.counters
        return {
            "putMessageTimesTotal": self.put_count,
            "putMessageSizeTotal": self.put_bytes,
            "putMessageAverageSize": self.put_bytes / self.put_count if self.put_count else 0.0,
            "putMessageFailedTimes": counters.put_failed_count,
            "putMessageEntireTimeMax": counters.put_latency_max_ms,
            "putMessageDistributeTime": _distribution(counters.put_latencies_minute),
            "putLatency99": f"{max(counters.put_latency_99_ms, 0):.2f}",
            "putLatency999": f"{max(counters.put_latency_999_ms, 0):.2f}",
            "putTps": _rates(counters.put_tps),
        }

    def _of_gets(self) -> dict[str, object]:
        counters = self.counters
        found, missed = counters.get_found_tps, counters.get_miss_tps
        transferred = _rates(counters.get_transferred_tps)
        return {
            "getMessageEntireTimeMax": counters.get_latency_max_ms,
            "getFoundTps": _rates(found),
            "getMissTps": _rates(missed),
            "getTotalTps": _rates([sum(each) for each in zip(found, missed, strict=True)]),
            "getTransferredTps": transferred,
            # The spelling of RocketMQ 4.9.
            "getTransferedTps": transferred,
        }

    def _of_log(self) -> dict[str, object]:
        status, counters = self.status, self.counters
        folder = next(each.path for each in status.directories if each.role == "commit log")
        total, free = status.disk_bytes / GIB, status.disk_bytes_free / GIB
        return {
            "commitLogMinOffset": counters.log_begin_offset,
            "commitLogMaxOffset": counters.log_end_offset,
            "commitLogDirCapacity": f"Total : {total:.1f} GiB, Free : {free:.1f} GiB.",
            "commitLogDiskRatio": self.used_ratio,
            f"commitLogDiskRatio_{folder}": self.used_ratio,
            "consumeQueueDiskRatio": self.used_ratio,
            "earliestMessageTimeStamp": self.earliest_ms,
            "dispatchBehindBytes": counters.dispatch_behind_bytes,
            "remainHowManyDataToFlush": f"{counters.flush_behind_bytes} B",
        }

    def _of_days(self) -> dict[str, object]:
        yesterday, today, now = self.days.yesterday_morning, self.days.today_morning, self.days.now
        return {
            "msgPutTotalYesterdayMorning": yesterday.put_count,
            "msgPutTotalTodayMorning": today.put_count,
            "msgPutTotalTodayNow": now.put_count,
            "msgGetTotalYesterdayMorning": yesterday.get_count,
            "msgGetTotalTodayMorning": today.get_count,
            "msgGetTotalTodayNow": now.get_count,
        }

    def _of_waiting(self) -> dict[str, object]:
        offsets = {
            f"scheduleMessageOffset_{level}": f"{following},{end}"
            for level, (following, end) in self.schedule_offsets.items()
        }
        return {**offsets, **dict(_empty_queues()), **self._of_timer()}

    def _of_timer(self) -> dict[str, object]:
        return {
            "timerReadBehind": self.timer_behind.ms // 1000,
            "timerOffsetBehind": self.timer_behind.message_count,
            "timerCongestNum": self.status.timer_pending_count,
        }


def _empty_queues() -> Iterator[tuple[str, int]]:
    for name in NO_QUEUES:
        yield f"{name}ThreadPoolQueueSize", 0
        yield f"{name}ThreadPoolQueueHeadWaitTimeMills", 0
    yield "EndTransactionQueueSize", 0
    yield "pageCacheLockTimeMills", 0


def _rates(rates: Sequence[float]) -> str:
    """Returns RATES numbers; 0.0 for a span that has not passed."""
    return " ".join(str(rate) for rate in [*rates, *[0.0] * (RATES - len(rates))])


def _distribution(buckets: Sequence[admin_pb2.LatencyBucket]) -> str:
    counts = (bucket.count for bucket in buckets)
    texts = (f"[{name}]:{count} " for name, count in zip(LATENCY_CLASSES, counts, strict=True))
    return "".join(texts)


def _runtime(seconds: int) -> str:
    days, rest = divmod(seconds, DAY_SECONDS)
    hours, rest = divmod(rest, HOUR_SECONDS)
    minutes, rest = divmod(rest, MINUTE_SECONDS)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {rest} seconds ]"

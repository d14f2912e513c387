"""Fields of `rocketpy broker status`, by name."""

from __future__ import annotations

from collections.abc import Mapping

from rocketpy_broker.client.statistics import Statistic
from rocketpy_broker.contract_json import json_of
from rocketpy_broker.runtime.time_format import time_of_ms
from rocketpy_broker.segment_waits import WAITS, SegmentWaitWords
from rocketpy_proto.counts import counted
from rocketpy_proto.rocketpy.v1 import admin_pb2

Info = admin_pb2.GetBrokerInfoResponse
Status = admin_pb2.GetBrokerStatusResponse
Waiting = admin_pb2.WaitingSegments
Counters = admin_pb2.GetStoreStatisticsResponse
DAY_MS = 24 * 3_600_000


# Counters that only `rocketpy stats` shows.
_LONG = frozenset({"topics", "hasMoreTopics", "putLatencies", "putLatenciesMinute"})


def status_fields(
    info: Info, status: Status, counters: Counters, counted: Mapping[str, Statistic]
) -> dict[str, object]:
    """Returns all fields with the keys of the HTTP API; rates are over 10, 60 and 600 s."""
    used = 1 - status.disk_bytes_free / status.disk_bytes if status.disk_bytes else 0.0
    return {
        **json_of(info),
        **json_of(status),
        **{key: value for key, value in json_of(counters).items() if key not in _LONG},
        "diskUsedRatio": round(used, 4),
        **_of_messages(counted, status.uptime_ms),
    }


def waiting_line(waiting: Waiting) -> str:
    """Returns a line about log segments that wait for removal."""
    cause, until = WAITS.get(waiting.reason, SegmentWaitWords(waiting.reason, "until"))
    when = waiting.until_timestamp_ms
    time = f"; {until} {time_of_ms(when)}" if until and when else ""
    segments = counted(waiting.segment_count, "segment waits", "segments wait")
    return f"{segments} ({waiting.reason}): {cause}{time}"


def _of_messages(counted: Mapping[str, Statistic], uptime_ms: int) -> dict[str, object]:
    """Returns messages put and got since the start and in the last 24 hours.

    The day's window has hourly samples; before 24 hours of uptime the total replaces it. A missing
    counter is 0.
    """
    fields: dict[str, object] = {}
    for name, shown in (("BROKER_PUT_NUMS", "messagesPut"), ("BROKER_GET_NUMS", "messagesGot")):
        found = counted.get(name)
        fields[shown] = found.value if found else 0
        of_day = found and (found.value if uptime_ms < DAY_MS else found.day.sum)
        fields[f"{shown}LastDay"] = of_day or 0
    return fields

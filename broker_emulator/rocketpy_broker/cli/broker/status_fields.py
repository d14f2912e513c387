"""Fields of `rocketpy broker status`, by name."""

from __future__ import annotations

from collections.abc import Mapping

from rocketpy_broker.client.statistics import Statistic
from rocketpy_broker.contract_json import camel, json_of
from rocketpy_broker.runtime.time_format import time_of_ms
from rocketpy_proto.counts import counted
from rocketpy_proto.rocketpy.v1 import admin_pb2

Info = admin_pb2.GetBrokerInfoResponse
Status = admin_pb2.GetBrokerStatusResponse
Waiting = admin_pb2.WaitingSegments
Counters = admin_pb2.GetStoreStatisticsResponse
# Texts by WaitingSegments.reason: the cause, and the words before the time.
WAITS = {
    "AGE": ("their messages are younger than --file-reserved-hours", "the first expires at"),
    "CLOCK": (
        "after a start or a clock jump the broker checks its clock first",
        "it may remove them from",
    ),
    "HOUR": (
        "the broker removes expired segments at the hours of --delete-when, or when the disk fills",
        "it removes them from",
    ),
    "NEEDED": ("waiting messages, open transactions, batches or a backup need them", ""),
    "BATCH": ("a pass removes at most ten; the next pass removes them", ""),
}
DAY_MS = 24 * 3_600_000


def status_fields(
    info: Info, status: Status, counters: Counters, counted: Mapping[str, Statistic]
) -> dict[str, object]:
    """Returns all fields; sizes in bytes, rates per second over the last 10, 60 and 600 s."""
    return {
        **_of_broker(info),
        **_of_disk(status),
        **_of_counters(counters),
        **_of_work(status),
        **_of_messages(counted, status.uptime_ms),
    }


def _of_broker(info: Info) -> dict[str, object]:
    return {
        "brokerName": info.broker_name,
        "clusterName": info.cluster_name,
        "version": info.version,
        "storeId": info.store_id,
        "flushDiskType": info.flush_disk_type,
        "refusal": info.refusal or "none",
        "commitLogSegmentBytes": info.commit_log_segment_bytes,
    }


def _of_disk(status: Status) -> dict[str, object]:
    used = 1 - status.disk_bytes_free / status.disk_bytes if status.disk_bytes else 0.0
    folders = {_directory_name(each.role): each.path for each in status.directories}
    return {
        **folders,
        "diskBytes": status.disk_bytes,
        "diskBytesFree": status.disk_bytes_free,
        "diskUsedRatio": round(used, 4),
    }


def _directory_name(role: str) -> str:
    return camel(f"{role.replace(' ', '_')}_directory")


def _of_counters(counters: Counters) -> dict[str, object]:
    return {
        "logBeginOffset": counters.log_begin_offset,
        "logEndOffset": counters.log_end_offset,
        "dispatchBehindBytes": counters.dispatch_behind_bytes,
        "flushBehindBytes": counters.flush_behind_bytes,
        "putTps": list(counters.put_tps),
        "getFoundTps": list(counters.get_found_tps),
        "getMissTps": list(counters.get_miss_tps),
        "getTransferredTps": list(counters.get_transferred_tps),
        "putLatency99Ms": counters.put_latency_99_ms,
        "putLatencyMaxMs": counters.put_latency_max_ms,
        "putFailed": counters.put_failed_count,
        "stagedBytes": counters.staged_bytes,
        "stagedBytesMax": counters.staged_bytes_max,
        "corruptRecords": counters.corrupt_record_count,
    }


def _of_work(status: Status) -> dict[str, object]:
    return {
        "startTime": time_of_ms(status.start_timestamp_ms),
        "uptimeSeconds": status.uptime_ms // 1000,
        "topics": status.topic_count,
        "queues": status.queue_count,
        "consumerGroups": status.consumer_group_count,
        "clients": status.client_count,
        "listeners": status.listener_count,
        "connections": status.connection_count,
        "heldCalls": status.held_call_count,
        "delayLevelPending": status.delay_level_pending_count,
        "timerPending": status.timer_pending_count,
        "halfMessages": status.half_message_count,
        "recoveredFromCrash": status.recovered,
        "recoveryDamages": status.recovery_damage_count,
        "recoveryBytesDropped": status.recovery_bytes_dropped,
        "quarantinedFiles": status.quarantined_file_count,
        "waitingSegments": [json_of(each) for each in status.waiting_segments],
    }


def waiting_line(waiting: Waiting) -> str:
    """Returns a line about log segments that wait for removal."""
    cause, until = WAITS.get(waiting.reason, (waiting.reason, "until"))
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

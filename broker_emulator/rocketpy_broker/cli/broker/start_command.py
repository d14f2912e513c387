"""`rocketpy broker start`: a broker in the foreground, until a signal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rocketpy_broker.broker_program import LOG_LEVEL, SEGMENT_BYTES_MIN, LogLevelName, run
from rocketpy_broker.cli.broker.network_options import (
    PORT,
    AdvertiseHost,
    AdvertisePort,
    BrokerId,
    Console,
    HaPort,
    HaTransferBytes,
    Host,
    HttpPort,
    Insecure,
    InSyncReplicas,
    Master,
    NameServerAccessKey,
    NameServerPort,
    NameServers,
    NameServerSecretKey,
    NameServerTls,
    NameServerTlsCa,
    Port,
    RemotingPort,
    Role,
    SlaveRead,
    SlaveTimeoutMs,
    TlsCertificate,
    TlsClientCa,
    TlsKey,
    TlsModeName,
    TlsPortNumber,
    TlsSelfSigned,
    Users,
    name_server_user,
    network_settings,
    replication,
    server_tls,
)
from rocketpy_broker.cli.broker.network_options import (
    name_server_tls as name_server_tls_of,
)
from rocketpy_broker.cli.exits import PARENT_PID
from rocketpy_broker.config import BrokerConfig, BrokerRole, ConsoleMode
from rocketpy_broker.embedded.temporary_store import TEST_SEGMENT_BYTES
from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.store.check.read_only import (
    DEFAULT_QUEUE_FILE_BYTES,
    DEFAULT_SEGMENT_BYTES,
    StoreSizes,
)
from rocketpy_broker.store.cleaner import HOUR_MS, CleanPolicy
from rocketpy_broker.store.config import FlushDiskType, FlushTimes
from rocketpy_broker.store.delay_levels import DEFAULT_LEVELS, DelayLevels

PAGE_BYTES = 4096
MINUTE_MS = 60_000
# RocketMQ's diskSpaceCleanForciblyRatio is 0.05 below its diskSpaceWarningLevelRatio.
FORCIBLE_BELOW_FULL = 0.05


def _directory(text: str) -> Path:
    """Returns the path. Refuses an empty one, which pathlib would read as `.`."""
    if not text:
        raise typer.BadParameter("the path is empty; name a directory, or `.` for the current one")
    return Path(text)


Data = Annotated[
    Path | None,
    typer.Option(
        parser=_directory,
        metavar="PATH",
        help="Directory of the store. Default: a temporary one, removed at the end.",
    ),
]
Flush = Annotated[
    FlushDiskType | None,
    typer.Option(
        help="The meaning of an acknowledgement: SYNC_FLUSH = on disk (default with --data), "
        "ASYNC_FLUSH = in the page cache (default without --data)."
    ),
]
Cluster = Annotated[str, typer.Option(help="brokerClusterName.")]
Name = Annotated[str, typer.Option(help="brokerName.")]
SegmentBytes = Annotated[
    int | None,
    typer.Option(
        min=SEGMENT_BYTES_MIN,
        help="mappedFileSizeCommitLog: bytes of a log segment, allocated at once. Default: the "
        f"size in the store, {DEFAULT_SEGMENT_BYTES} for a new one.",
    ),
]
StopAtEof = Annotated[
    bool,
    typer.Option("--stop-at-eof", help="Stop when standard input ends, as when a parent exits."),
]
Ephemeral = Annotated[
    bool,
    typer.Option(
        "--ephemeral",
        help="Serve one program: on free ports, with a temporary store. Prints the addresses as "
        "one line of JSON. Stops when the parent process ends, or when standard input is a pipe "
        "that ends.",
    ),
]


def _queue_file_bytes(size: int | None) -> int | None:
    if size is not None and size % 20:
        raise typer.BadParameter(f"is {size}; give a multiple of 20, the bytes of a unit")
    return size


QueueFileBytes = Annotated[
    int | None,
    typer.Option(
        callback=_queue_file_bytes,
        min=20,
        help="mappedFileSizeConsumeQueue. Default: the size in the store, "
        f"{DEFAULT_QUEUE_FILE_BYTES} for a new one.",
    ),
]
FlushIntervalMs = Annotated[
    int, typer.Option(min=1, help="flushIntervalCommitLog, with ASYNC_FLUSH.")
]
FlushLeastPages = Annotated[
    int,
    typer.Option(
        min=0, help="flushCommitLogLeastPages: fewer pages wait up to 10 s; RocketMQ's is 4."
    ),
]
SyncFlushTimeoutMs = Annotated[
    int, typer.Option(min=1, help="syncFlushTimeout: wait for a flush; then FLUSH_DISK_TIMEOUT.")
]
FileReservedHours = Annotated[
    float, typer.Option(min=0, help="fileReservedTime: the broker removes older log segments.")
]
DeleteWhen = Annotated[
    list[int] | None,
    typer.Option(min=0, max=23, help="deleteWhen: local hour when expired segments go; default 4."),
]
DiskFullRatio = Annotated[
    float,
    typer.Option(
        min=0.35,
        max=1.0,
        envvar="ROCKETPY_DISK_FULL_RATIO",
        help="diskSpaceWarningLevelRatio: the broker refuses sends while more of the disk is used.",
    ),
]
StagingBytesMax = Annotated[
    int,
    typer.Option(min=1, help="Limit of disk space for batches that are staged and not committed."),
]
StagingIdleMinutes = Annotated[
    float,
    typer.Option(min=1, help="Time without a call until a staged batch is removed."),
]
MessageDelayLevel = Annotated[
    str, typer.Option(help="messageDelayLevel: the delays of levels 1, 2, ...")
]
TimerPendingMax = Annotated[
    int,
    typer.Option(
        min=0, help="Limit of messages that wait for a delivery time, 50 bytes of memory each."
    ),
]
TimerDelayMaxHours = Annotated[
    float,
    typer.Option(min=0, help="timerMaxDelaySec: longest time until delivery, in hours."),
]
CleanForcibly = Annotated[
    bool,
    typer.Option(
        "--clean-forcibly",
        help="cleanFileForciblyEnable: remove segments before their time when disk usage is "
        "above --disk-full-ratio minus 0.05.",
    ),
]
EnableMixed = Annotated[
    bool,
    typer.Option(
        "--enable-mixed-message-type",
        help="enableMixedMessageType: allow topics of the message type MIXED.",
    ),
]
CheckTypes = Annotated[
    bool,
    typer.Option(
        "--topic-message-type-check/--no-topic-message-type-check",
        help="enableTopicMessageTypeCheck: refuse messages of another type than their topic.",
    ),
]
LongPolling = Annotated[
    bool,
    typer.Option(
        "--long-polling/--short-polling",
        help="longPollingEnable: a new message ends a held pull. With short polling, a fixed time "
        "ends it.",
    ),
]
ShortPollingTimeMs = Annotated[
    int, typer.Option(min=1, help="shortPollingTimeMills, with --short-polling.")
]
LogLevel = Annotated[
    LogLevelName,
    typer.Option(envvar=LOG_LEVEL, help="Lowest level of log lines on standard error."),
]
# The token of a LocalBroker's temporary store.
Temporary = Annotated[str | None, typer.Option(hidden=True)]
# A test's movable clock starts ahead of the machine's by this time.
ClockAheadMs = Annotated[int | None, typer.Option(hidden=True, min=0)]
# The segment size of a new store; a LocalBroker's is smaller than the default.
NewSegmentBytes = Annotated[int, typer.Option(hidden=True, min=SEGMENT_BYTES_MIN)]


def broker(
    data: Data = None,
    host: Host = "127.0.0.1",
    insecure: Insecure = False,
    users: Users = None,
    port: Port = None,
    remoting_port: RemotingPort = None,
    name_server_port: NameServerPort = None,
    name_server: NameServers = "",
    advertise_host: AdvertiseHost = "",
    advertise_port: AdvertisePort = None,
    http_port: HttpPort = None,
    console: Console = ConsoleMode.ON,
    ha_port: HaPort = None,
    broker_role: Role = BrokerRole.ASYNC_MASTER,
    broker_id: BrokerId = None,
    master: Master = None,
    slave_read_enable: SlaveRead = False,
    in_sync_replicas: InSyncReplicas = None,
    slave_timeout_ms: SlaveTimeoutMs = 3_000,
    ha_transfer_bytes_per_second: HaTransferBytes = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    tls_self_signed: TlsSelfSigned = False,
    tls_mode: TlsModeName = None,
    tls_port: TlsPortNumber = None,
    name_server_tls: NameServerTls = False,
    name_server_tls_ca: NameServerTlsCa = None,
    name_server_access_key: NameServerAccessKey = "",
    name_server_secret_key: NameServerSecretKey = "",
    flush: Flush = None,
    cluster_name: Cluster = "DefaultCluster",
    broker_name: Name = "broker-a",
    commit_log_segment_bytes: SegmentBytes = None,
    consume_queue_file_bytes: QueueFileBytes = None,
    flush_interval_ms: FlushIntervalMs = 500,
    flush_least_pages: FlushLeastPages = 0,
    sync_flush_timeout_ms: SyncFlushTimeoutMs = 5_000,
    file_reserved_hours: FileReservedHours = 72,
    delete_when: DeleteWhen = None,
    disk_full_ratio: DiskFullRatio = 0.90,
    clean_forcibly: CleanForcibly = False,
    staging_bytes_max: StagingBytesMax = 32 << 30,
    staging_idle_minutes: StagingIdleMinutes = 60,
    message_delay_level: MessageDelayLevel = DEFAULT_LEVELS,
    timer_pending_max: TimerPendingMax = 2_000_000,
    timer_delay_max_hours: TimerDelayMaxHours = 72,
    enable_mixed_message_type: EnableMixed = False,
    topic_message_type_check: CheckTypes = True,
    long_polling: LongPolling = True,
    short_polling_time_ms: ShortPollingTimeMs = 1_000,
    stop_at_eof: StopAtEof = False,
    ephemeral: Ephemeral = False,
    log_level: LogLevel = LogLevelName.WARNING,
    temporary: Temporary = None,
    clock_ahead_ms: ClockAheadMs = None,
    new_segment_bytes: NewSegmentBytes = DEFAULT_SEGMENT_BYTES,
) -> None:
    """Run a broker until SIGTERM, SIGINT or SIGHUP."""
    if ephemeral:
        _check_temporary(data)
        port, new_segment_bytes = port or 0, TEST_SEGMENT_BYTES
    delay_levels = _delay_levels(message_delay_level)
    network = network_settings(
        PORT if port is None else port,
        *(remoting_port, name_server_port, http_port),
        *(name_server, advertise_host, advertise_port),
    )
    tls = server_tls(
        *(tls_mode, tls_certificate, tls_key, tls_client_ca, tls_port),
        is_self_signed=tls_self_signed,
    )
    network["slave_read_enable"] = slave_read_enable
    network["replication"] = replication(
        *(broker_role, broker_id, master, ha_port, in_sync_replicas, network["name_servers"]),
        *(slave_timeout_ms, ha_transfer_bytes_per_second),
    )
    registration_tls = name_server_tls_of(
        name_server_tls_ca, tls_certificate, tls_key, is_used=name_server_tls
    )
    user = name_server_user(name_server, name_server_access_key, name_server_secret_key)

    def config(folder: Path) -> BrokerConfig:
        sizes = StoreSizes.of(
            folder, commit_log_segment_bytes, consume_queue_file_bytes, new_segment_bytes
        )
        return BrokerConfig(
            data=folder,
            host=host,
            insecure=insecure,
            users_path=users,
            **network,
            console=console,
            tls=tls,
            name_server_tls=registration_tls,
            name_server_user=user,
            cluster_name=cluster_name,
            broker_name=broker_name,
            flush_disk_type=flush or _default_flush(data),
            commit_log_segment_bytes=sizes.segment_bytes,
            consume_queue_file_bytes=sizes.queue_file_bytes,
            staging_bytes_max=staging_bytes_max,
            staging_idle_ms_max=int(staging_idle_minutes * MINUTE_MS),
            delay_levels=delay_levels,
            timer_pending_max=timer_pending_max,
            timer_delay_ms_max=int(timer_delay_max_hours * HOUR_MS),
            enable_mixed_message_type=enable_mixed_message_type,
            enable_topic_message_type_check=topic_message_type_check,
            long_polling_enable=long_polling,
            short_polling_time_ms=short_polling_time_ms,
            clock_ahead_ms=clock_ahead_ms,
            flush_times=_flush_times(flush_interval_ms, flush_least_pages, sync_flush_timeout_ms),
            clean_policy=_clean_policy(
                file_reserved_hours, delete_when, disk_full_ratio, is_forcible=clean_forcibly
            ),
        )

    level, parent_pid = log_level.value, PARENT_PID if ephemeral else None
    run(config, data, temporary, stop_at_eof=stop_at_eof, log_level=level, parent_pid=parent_pid)


def _check_temporary(data: Path | None) -> None:
    if data is not None:
        raise typer.BadParameter("--ephemeral has a temporary store; leave --data out")


def _default_flush(data: Path | None) -> FlushDiskType:
    return FlushDiskType.SYNC_FLUSH if data else FlushDiskType.ASYNC_FLUSH


def _flush_times(interval_ms: int, least_pages: int, sync_timeout_ms: int) -> FlushTimes:
    return FlushTimes(
        flush_interval_ms=interval_ms,
        least_bytes=max(least_pages * PAGE_BYTES, 1),
        sync_flush_timeout_ms=sync_timeout_ms,
    )


def _clean_policy(
    reserved_hours: float,
    delete_when: list[int] | None,
    disk_full_ratio: float,
    *,
    is_forcible: bool,
) -> CleanPolicy:
    return CleanPolicy(
        reserved_ms=int(reserved_hours * HOUR_MS),
        delete_when_hours=frozenset(delete_when or [4]),
        clean_file_forcibly_enable=is_forcible,
        clean_forcibly_ratio=disk_full_ratio - FORCIBLE_BELOW_FULL,
        warning_level_ratio=disk_full_ratio,
    )


def _delay_levels(text: str) -> DelayLevels:
    try:
        return DelayLevels.parse(text)
    except ParameterIllegalError as error:
        raise typer.BadParameter(str(error)) from error

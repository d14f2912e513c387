"""What can be set on a broker, with defaults. Holds no state."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rocketpy_broker.store.cleaner import CleanPolicy
from rocketpy_broker.store.config import FlushDiskType, FlushTimes
from rocketpy_broker.store.delay_levels import DelayLevels

KIB = 1024
MIB = 1024 * KIB
MINUTE_MS = 60_000
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Bounds of what clients register, in one request and all together; sizes in bytes.

    A client id in a group is one registration. Subscriptions count with their texts, and notices
    with the records that they carry. A client leaves its groups in one step, so it has
    `groups_per_client_max` at most. `groups_max` is for consumer groups that come to be by their
    first use. A request of `request_bytes_max` takes 8 ms to decode, however many parts it has.
    """

    request_bytes_max: int = 512 * KIB
    groups_max: int = 100_000
    client_id_bytes_max: int = 255
    expression_bytes_max: int = 16 * KIB
    groups_per_heartbeat_max: int = 100
    subscriptions_per_group_max: int = 1_000
    subscriptions_per_heartbeat_max: int = 2_000
    members_per_group_max: int = 10_000
    clients_max: int = 100_000
    registrations_max: int = 200_000
    registrations_per_connection_max: int = 20_000
    groups_per_client_max: int = 1_000
    subscription_bytes_max: int = 64 * MIB
    subscription_bytes_per_connection_max: int = 16 * MIB
    queues_per_lock_max: int = 1_000
    locks_max: int = 200_000
    locks_per_connection_max: int = 20_000
    notices_per_client_max: int = 1_000
    notice_bytes_max: int = 64 * MIB
    notice_bytes_per_connection_max: int = 16 * MIB


@dataclass(frozen=True, slots=True)
class TransferLimits:
    """What one response to a group's pull holds that names no size; RocketMQ's names and defaults.

    On disk counts what lies further behind the log's end than `BrokerConfig` says.
    """

    count_on_message_in_memory: int = 32
    bytes_on_message_in_memory: int = 256 * KIB
    count_on_message_in_disk: int = 8
    bytes_on_message_in_disk: int = 64 * KIB


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of requests; sizes in bytes. The body's is RocketMQ's maxMessageSize.

    To receive a request, or to send a response, takes the event loop 0.3 ms for each MiB, in one
    turn.
    """

    body_bytes_max: int = 4 * MIB
    request_bytes_max: int = 8 * MIB
    pull_response_bytes: int = 512 * KIB
    pull_response_bytes_max: int = 4 * MIB
    pull_wait_ms_max: int = 60_000
    transfer: TransferLimits = field(default_factory=TransferLimits)
    appends_in_flight_max: int = 64
    clients: ClientLimits = field(default_factory=ClientLimits)


@dataclass(frozen=True, slots=True)
class SystemTopicOptions:
    """What decides on the broker's own topics. Names and defaults are RocketMQ's."""

    auto_create_topic_enable: bool = True
    trace_topic_enable: bool = False
    timer_wheel_enable: bool = True
    default_topic_queue_nums: int = 8
    revive_queue_nums: int = 8


@dataclass(frozen=True, slots=True)
class TransactionTimes:
    """How long transactions may stay open; names and defaults are RocketMQ's, times in ms.

    One that is open for `timeout_ms` is asked after, each `check_interval_ms`, and given up when it
    was asked after `check_max` times.
    """

    timeout_ms: int = 6_000
    check_interval_ms: int = 30_000
    check_max: int = 15


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """One broker. `port` 0 lets the system choose a free one, and so does `http_port`, where None
    stands for no HTTP and no metrics.

    `persist_interval_ms` is how often consumer offsets are saved, `clean_interval_ms` how often
    expired files and the disk's space are looked at, first after `clean_delay_ms`.
    `auto_create_subscription_group` lets a group come to be by its first use. A writer of batches
    that has committed none for `writer_idle_ms_max` is forgotten, and one that writes one batch and
    never comes back `single_writer_idle_ms_max` after it. What a job has staged for a batch is
    removed when nothing was heard of it for `staging_idle_ms_max`; `staging_bytes_max` is the disk
    space of all that is staged. `delay_levels` and `timer_delay_ms_max` are RocketMQ's
    messageDelayLevel and timerMaxDelaySec. Of messages with a delivery time at most
    `timer_pending_max` wait, about 50 bytes of memory each. `recall_message_enable` lets senders
    take them back. `enable_mixed_message_type` lets topics have the message type MIXED;
    `enable_topic_message_type_check` refuses messages of another type than their topic has.
    `access_message_in_memory_max_ratio` is the percentage of the machine's memory
    that the log's last messages may take and still count as being in memory. Without
    `long_polling_enable` a held call looks again after `short_polling_time_ms`, not when a message
    comes, and is answered then. `insecure` consents to a `host` that others may reach. With
    `clock_ahead_ms` the broker is one for tests: its clock begins so far ahead, and can be moved.
    """

    data: Path
    host: str = "127.0.0.1"
    insecure: bool = False
    port: int = 8081
    http_port: int | None = None
    cluster_name: str = "DefaultCluster"
    broker_name: str = "broker-a"
    flush_disk_type: FlushDiskType = FlushDiskType.SYNC_FLUSH
    commit_log_segment_bytes: int = 1 << 30
    consume_queue_file_bytes: int = 6_000_000
    flush_times: FlushTimes = field(default_factory=FlushTimes)
    persist_interval_ms: int = 5_000
    clean_policy: CleanPolicy = field(default_factory=CleanPolicy)
    clean_interval_ms: int = 10_000
    clean_delay_ms: int = 60_000
    slave_read_enable: bool = False
    access_message_in_memory_max_ratio: int = 40
    long_polling_enable: bool = True
    short_polling_time_ms: int = 1_000
    stop_grace_ms: int = 3_000
    auto_create_subscription_group: bool = True
    writer_idle_ms_max: int = 7 * DAY_MS
    staging_bytes_max: int = 32 << 30
    staging_idle_ms_max: int = 3_600_000
    broker_permission: int = 6
    start_accept_send_request_timestamp_ms: int = 0
    reject_transaction_message: bool = False
    transactions: TransactionTimes = field(default_factory=TransactionTimes)
    delay_levels: DelayLevels = field(default_factory=DelayLevels.parse)
    timer_delay_ms_max: int = 3 * DAY_MS
    timer_pending_max: int = 2_000_000
    recall_message_enable: bool = True
    enable_mixed_message_type: bool = False
    enable_topic_message_type_check: bool = True
    single_writer_idle_ms_max: int = 10 * MINUTE_MS
    clock_ahead_ms: int | None = None
    system_topics: SystemTopicOptions = field(default_factory=SystemTopicOptions)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        """Makes `data` absolute: the program may change its directory later."""
        object.__setattr__(self, "data", self.data.absolute())

    @property
    def config_folder(self) -> Path:
        """Where RocketMQ keeps its JSON files."""
        return self.data / "config"

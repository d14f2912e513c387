"""Configuration of a broker, with defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from rocketpy_broker.errors import ParameterConflictError
from rocketpy_broker.store.cleaner import CleanPolicy
from rocketpy_broker.store.config import FlushDiskType, FlushTimes
from rocketpy_broker.store.delay_levels import DelayLevels
from rocketpy_proto.tls import TlsConfig

KIB = 1024
MIB = 1024 * KIB
MINUTE_MS = 60_000
DAY_MS = 86_400_000
_NO_PAIR = "there is no certificate; give --tls-certificate and --tls-key, or --tls-self-signed"


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Limits of client registrations, per request and in all; sizes in bytes.

    A client id in a group is one registration. Subscriptions count with their texts, and notices
    with their records. A client leaves all its groups in one scheduler slot, so
    `groups_per_client_max` limits them. `groups_max` limits the consumer groups that are created by
    their first use. A request of `request_bytes_max` takes at most 8 ms to decode.
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


# Slaves of one master.
SLAVES_MAX = 16
SLAVE_RATIO_BELOW = 10


class BrokerRole(str, Enum):
    """RocketMQ's brokerRole: a master with or without a wait for slaves, or a slave."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@dataclass(frozen=True, slots=True)
class Replication:
    """Replication of the log to slaves; sizes in bytes.

    - `broker_id`: RocketMQ's brokerId: 0 for a master, and 1 to SLAVES_MAX for a slave.
    - `master`: the remoting address (host:port) of a slave's master. None: the name servers know
      it, by the broker's name.
    - `port`: the port for slaves; 0 takes a free one, and None turns it off. A client that reaches
      it can read the whole log, since RocketMQ's slaves have no credentials.
    - `in_sync_replicas`: the number of brokers, this one included, that have a message before a
      SYNC_MASTER acknowledges it, as in RocketMQ 5. None: one slave, as in RocketMQ 4. There is
      then no wait without a connected slave, or if all lack `fall_behind_bytes_max` of the log.
    - `batch_bytes`: the log's bytes that a slave gets at a time.
    - `bytes_per_second_max`: the limit of one slave's transfer; None is no limit.
    """

    role: BrokerRole = BrokerRole.ASYNC_MASTER
    broker_id: int = 0
    master: str | None = None
    port: int | None = None
    in_sync_replicas: int | None = None
    slave_timeout_ms: int = 3_000
    fall_behind_bytes_max: int = 256 * MIB
    batch_bytes: int = 256 * KIB
    bytes_per_second_max: int | None = None

    @property
    def is_slave(self) -> bool:
        """True for a slave."""
        return self.role is BrokerRole.SLAVE


@dataclass(frozen=True, slots=True)
class TransferLimits:
    """Limits of a response to a group's pull that names no size.

    Names and defaults are RocketMQ's. Messages farther from the log's end than
    `access_message_in_memory_max_ratio` count as on disk.
    """

    count_on_message_in_memory: int = 32
    bytes_on_message_in_memory: int = 256 * KIB
    count_on_message_in_disk: int = 8
    bytes_on_message_in_disk: int = 64 * KIB


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of requests; sizes in bytes. `body_bytes_max` is RocketMQ's maxMessageSize.

    The event loop needs 0.3 ms per MiB to receive a request or send a response, in one slot.
    """

    body_bytes_max: int = 4 * MIB
    request_bytes_max: int = 8 * MIB
    pull_response_bytes: int = 512 * KIB
    pull_response_bytes_max: int = 4 * MIB
    pull_wait_ms_max: int = 60_000
    transfer: TransferLimits = field(default_factory=TransferLimits)
    appends_in_flight_max: int = 64
    unflushed_bytes_max: int = 256 * MIB
    clients: ClientLimits = field(default_factory=ClientLimits)


@dataclass(frozen=True, slots=True)
class SystemTopicOptions:
    """Options of the broker's own topics, with RocketMQ's names and defaults."""

    auto_create_topic_enable: bool = True
    trace_topic_enable: bool = False
    timer_wheel_enable: bool = True
    default_topic_queue_nums: int = 8
    revive_queue_nums: int = 8


@dataclass(frozen=True, slots=True)
class TransactionTimes:
    """Times of transaction checks in ms, with RocketMQ's names and defaults.

    The broker checks a transaction that is open for `timeout_ms`, every `check_interval_ms`. It
    gives the transaction up after `check_max` checks.
    """

    timeout_ms: int = 6_000
    check_interval_ms: int = 30_000
    check_max: int = 15


class ConsoleMode(str, Enum):
    """The permission of the console on the HTTP port: actions, pages alone, or nothing."""

    ON = "on"
    READ_ONLY = "read-only"
    OFF = "off"


class TlsMode(str, Enum):
    """RocketMQ's tls.server.mode: the connections that a port serves."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


@dataclass(frozen=True, slots=True)
class ServerTls:
    """TLS of a server's ports; files are in PEM form.

    - `mode`: DISABLED serves plaintext only, PERMISSIVE both, and ENFORCING TLS only.
    - `certificate`, `key`: the server's pair. With `is_self_signed` the server makes one.
    - `client_ca`: each client needs a certificate of one of these authorities.
    - `port`: the second gRPC port of the permissive mode, for TLS; 0 takes a free one.
    """

    mode: TlsMode = TlsMode.DISABLED
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    is_self_signed: bool = False
    port: int = 0

    @property
    def is_mutual(self) -> bool:
        """True if each client needs a certificate."""
        return self.mode is TlsMode.ENFORCING and self.client_ca is not None

    @classmethod
    def of(
        cls,
        mode: TlsMode | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
        client_ca: Path | None = None,
        port: int | None = None,
        *,
        is_self_signed: bool = False,
    ) -> ServerTls:
        """Returns the checked settings; without a mode, a pair makes it permissive.

        Raises ParameterIllegalError.
        """
        if key is None and certificate is not None:
            conflict = "--tls-key is missing; give both, or none"
            raise ParameterConflictError("--tls-certificate", str(certificate), conflict)
        if certificate is None and key is not None:
            conflict = "--tls-certificate is missing; give both, or none"
            raise ParameterConflictError("--tls-key", str(key), conflict)
        if is_self_signed and certificate is not None:
            conflict = "--tls-self-signed is given too; leave out one of them"
            raise ParameterConflictError("--tls-certificate", str(certificate), conflict)
        has_pair = is_self_signed or certificate is not None
        if mode is None:
            mode = TlsMode.PERMISSIVE if has_pair else TlsMode.DISABLED
        if mode is not TlsMode.DISABLED and not has_pair:
            raise ParameterConflictError("--tls-mode", mode.value, _NO_PAIR)
        if client_ca is not None and not has_pair:
            raise ParameterConflictError("--tls-client-ca", str(client_ca), _NO_PAIR)
        if port is not None and mode is not TlsMode.PERMISSIVE:
            conflict = f"--tls-mode is {mode.value!r}; leave it out, or set --tls-mode permissive"
            raise ParameterConflictError("--tls-port", port, conflict)
        paths = [
            None if each is None else each.absolute() for each in (certificate, key, client_ca)
        ]
        return cls(mode, paths[0], paths[1], paths[2], is_self_signed, port or 0)


@dataclass(frozen=True, slots=True)
class SigningUser:
    """A user of another server, whose secret key signs the broker's requests to it."""

    access_key: str
    secret_key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Configuration of one broker.

    - `port`, `http_port`, `remoting_port`, `name_server_port`: 0 takes a free port, and None turns
      the server off. Without `http_port` there are no metrics.
    - `console`: the pages on `http_port`; `READ_ONLY` has no actions.
    - `preferred_ports`: ports of remoting, name server and HTTP. If one of them is in use, the
      broker takes a free one.
    - `name_servers`: the addresses (host:port) of name servers where the broker registers.
    - `advertise_host`, `advertise_port`: the remoting address that clients get from name servers.
      By default it is the broker's address in the connection of the name server or client.
    - `insecure`: allows a `host` that other machines can reach, although there are no users.
    - `users_path`: the file of the users; by default it is `users.json` in `config_folder`. The
      broker checks it for changes every `users_check_interval_ms`.
    - `tls`: TLS of all ports. `name_server_tls`: TLS of the connections to `name_servers`.
      `name_server_user`: the user that signs the requests to them.
    - `index_slot_count`, `index_entry_count_max`: RocketMQ's maxHashSlotNum and maxIndexNum.
      The commands about the store of a stopped broker know the defaults alone.
    - `persist_interval_ms`: the interval between two saves of consumer offsets.
    - `clean_interval_ms`: the interval between two checks of expired files and disk space. The
      first check is after `clean_delay_ms`.
    - `auto_create_subscription_group`: a group is created by its first use.
    - `writer_idle_ms_max`: a writer without a commit for this time is removed;
      `single_writer_idle_ms_max` is the time of a writer with a single batch.
    - `staging_idle_ms_max`: a job's staged batch is removed after this time without a call.
      `staging_bytes_max` limits the disk space of all staged batches.
    - `delay_levels`, `timer_delay_ms_max`: RocketMQ's messageDelayLevel and timerMaxDelaySec.
    - `timer_pending_max`: the limit of messages that wait for a delivery time. Each takes about 50
      bytes of memory. Acknowledgements of pop consumers are accepted up to twice the limit.
      `recall_message_enable`: senders may recall the waiting messages.
    - `enable_mixed_message_type`: topics may have the message type MIXED.
      `enable_topic_message_type_check`: a message of another type than its topic's is refused.
    - `access_message_in_memory_max_ratio`: the percentage of the machine's memory for the log's
      last messages, which count as in memory. `slave_read_enable`: clients that read older messages
      are sent to a slave.
    - `long_polling_enable`: a message wakes a held call. Without it the broker reads again after
      `short_polling_time_ms` and answers then.
    - `clock_ahead_ms`: a broker for tests. Its clock starts ahead by this time and can be moved.
    """

    data: Path
    host: str = "127.0.0.1"
    insecure: bool = False
    users_path: Path | None = None
    users_check_interval_ms: int = 1_000
    port: int = 8081
    http_port: int | None = None
    console: ConsoleMode = ConsoleMode.ON
    remoting_port: int | None = None
    name_server_port: int | None = None
    preferred_ports: frozenset[int] = frozenset()
    tls: ServerTls = field(default_factory=ServerTls)
    name_servers: tuple[str, ...] = ()
    name_server_tls: TlsConfig | None = None
    name_server_user: SigningUser | None = None
    advertise_host: str | None = None
    advertise_port: int | None = None
    cluster_name: str = "DefaultCluster"
    broker_name: str = "broker-a"
    flush_disk_type: FlushDiskType = FlushDiskType.SYNC_FLUSH
    replication: Replication = field(default_factory=Replication)
    commit_log_segment_bytes: int = 1 << 30
    consume_queue_file_bytes: int = 6_000_000
    index_slot_count: int = 5_000_000
    index_entry_count_max: int = 20_000_000
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
        """Makes paths absolute: the program may change its directory later."""
        object.__setattr__(self, "data", self.data.absolute())
        if self.users_path is not None:
            object.__setattr__(self, "users_path", self.users_path.absolute())

    @property
    def memory_ratio_percent(self) -> int:
        """RocketMQ's accessMessageInMemoryMaxRatio in use: a slave's is lower by 10."""
        ratio = self.access_message_in_memory_max_ratio
        return max(ratio - SLAVE_RATIO_BELOW, 0) if self.replication.is_slave else ratio

    @property
    def users_file(self) -> Path:
        """The file of the users; without users the broker serves every client."""
        return self.users_path or self.config_folder / "users.json"

    @property
    def config_folder(self) -> Path:
        """The directory of RocketMQ's JSON files."""
        return self.data / "config"

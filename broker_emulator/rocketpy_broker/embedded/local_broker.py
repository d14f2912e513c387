"""LocalBroker: a broker in its own process for tests, notebooks and demos.

The store is in the given directory, or in a temporary one that is removed with the broker. `kill`
leaves the directory as a crash does; `restart` recovers it. If the program dies, the broker stops
and removes the temporary store.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from rocketpy_broker.client import contents
from rocketpy_broker.client.calls.base import call
from rocketpy_broker.client.calls.fork_calls import fork_count
from rocketpy_broker.client.calls.group_calls import GroupCalls
from rocketpy_broker.client.calls.message_calls import MessageCalls
from rocketpy_broker.client.calls.query_calls import QueryCalls
from rocketpy_broker.client.calls.topic_calls import TopicCalls
from rocketpy_broker.client.calls.transaction_calls import TransactionCalls
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.config import BrokerConfig, BrokerRole
from rocketpy_broker.embedded.clock_calls import ClockCalls
from rocketpy_broker.embedded.option_checks import absolute, check_numbers, check_ports, tls_of
from rocketpy_broker.embedded.process import (
    START_SECONDS_MAX,
    BrokerProcess,
    LocalBrokerError,
    LocalTls,
    ReservedPort,
    StartTimes,
    broker_command,
)
from rocketpy_broker.embedded.temporary_store import TEST_SEGMENT_BYTES, TemporaryStore
from rocketpy_broker.errors import BrokerError, ParameterIllegalError
from rocketpy_broker.server.security.users import UserTable
from rocketpy_broker.services.replication.options import replication_of
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.delay_levels import DelayLevels
from rocketpy_broker.store.files.durable import FOLDER_MODE
from rocketpy_proto.rocketpy.v1 import admin_pb2

__all__ = ["BrokerUser", "LocalBroker", "LocalBrokerError", "LocalTls"]
ADMIN = "admin"
Choice = TypeVar("Choice", bound=Enum)
LOG_NAME = "broker.log"
# RocketMQ's default is 5 s.
SYNC_FLUSH_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True)
class BrokerUser:
    """A user: role `user`, `monitor` or `admin`, and permissions by topic and group.

    Permissions are RocketMQ's: `PUB`, `SUB`, `PUB|SUB`, `ALL` or `DENY`. A name may be a prefix and
    `*`.
    """

    access_key: str
    secret_key: str = field(repr=False)
    role: str = "user"
    topics: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)


class LocalBroker(ClockCalls, TopicCalls, GroupCalls, MessageCalls, TransactionCalls, QueryCalls):
    """A broker in its own process, on a free port of 127.0.0.1.

        with LocalBroker() as broker:
            broker.create_topic("orders", queues=4)
            broker.send("orders", "a first order", tags="new", keys="order-1")
            assert [message.text for message in broker.messages("orders")] == ["a first order"]
            spark.readStream.format("rocketpy").option("endpoints", broker.endpoint)

    - `data`: the directory of the store, which is kept. Without it the store is temporary. A
      relative path is resolved at once, against the current directory.
    - `port`: the gRPC port; 0 takes a free one, which stays this broker's between its starts.
    - `flush`: the meaning of an acknowledgement. `SYNC_FLUSH` (on disk) is the default with `data`,
      `ASYNC_FLUSH` (in the page cache) without.
    - `commit_log_segment_bytes`: the size of the log's files. The default is the existing store's
      size, or 64 MiB for a new store.
    - `start_seconds_max`: the time limit for a start on an idle machine, also after a crash; 60 s.
    - `http_port`: the port of the console, the JSON API, `/metrics` and `/healthz`; 0 takes a free
      one. Without it there is no HTTP.
    - `tls`: True makes a self-signed certificate, a `LocalTls` names files. `tls_endpoint` is then
      the gRPC address for TLS, and `tls_ca_file` has the authorities that clients need. All other
      ports serve TLS and plaintext.
    - `message_delay_level`: RocketMQ's messageDelayLevel, such as `1s 5s 1m`: the delays of levels
      1, 2 and so on. The default is RocketMQ's 18 levels.
    - `broker_role`: `ASYNC_MASTER` (default), `SYNC_MASTER` or `SLAVE`. A slave copies `master`,
      the `remoting_endpoint` of a LocalBroker with `ha_port`, and serves reads alone. Each slave
      of a master needs a different `broker_id`; the default is 1.
    - `ha_port`: the port where slaves get the log; 0 takes a free one, which a restart keeps.
    - `in_sync_replicas`: the number of brokers, this `SYNC_MASTER` included, that have a message
      before it is acknowledged.
    - `users`: `BrokerUser`s, one of them with the role `admin`, which the methods of this class
      use. Every other client must sign its requests. Without users the broker serves all clients.

    RocketMQ's own clients and tools use `name_server`, on another free port. It also gives the
    routes of other brokers that register there. `remoting_endpoint` is the broker's port for them.

    `advance_clock` moves the broker's clock, so that tests of delays need not wait.

    All methods raise LocalBrokerError with the broker's answer. A forked process, or one that
    received the broker pickled, can call it, but can neither start nor stop it.
    """

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        port: int = 0,
        flush: FlushDiskType | str | None = None,
        commit_log_segment_bytes: int | None = None,
        start_seconds_max: float = START_SECONDS_MAX,
        http_port: int | None = None,
        message_delay_level: str | None = None,
        tls: LocalTls | bool = False,
        broker_role: BrokerRole | str = BrokerRole.ASYNC_MASTER,
        broker_id: int | None = None,
        master: str | None = None,
        ha_port: int | None = None,
        in_sync_replicas: int | None = None,
        users: Sequence[BrokerUser] = (),
    ) -> None:
        """Raises ParameterIllegalError for an option that is not accepted."""
        check_ports({"port": port, "http_port": http_port, "ha_port": ha_port})
        check_numbers(start_seconds_max, commit_log_segment_bytes)
        if message_delay_level is not None:
            DelayLevels.parse(str(message_delay_level))
        self._message_delay_level = message_delay_level
        self._tls = tls_of(tls)
        self._role = _choice(BrokerRole, "broker_role", broker_role)
        self._broker_id, self._master, self._ha_port = broker_id, master, ha_port
        self._in_sync_replicas = in_sync_replicas
        replication_of(
            *(self._role, broker_id, master, ha_port, in_sync_replicas), has_name_servers=False
        )
        self._users = _users_of(users)
        self._given_data = None if data is None else absolute("data", data)
        self._temporary: TemporaryStore | None = None
        default = FlushDiskType.ASYNC_FLUSH if data is None else FlushDiskType.SYNC_FLUSH
        self._flush = default if flush is None else _choice(FlushDiskType, "flush", flush)
        self._port = port
        self._http_port = http_port
        self._remoting_port = self._name_server_port = self._tls_port = 0
        self._commit_log_segment_bytes = commit_log_segment_bytes
        self._start_times = StartTimes(start_seconds_max)
        self._reserved_ports: list[ReservedPort] = []
        self._process: BrokerProcess | None = None
        self._has_served = False
        self._pid = 0
        # Another process may have a copy by a fork or by pickling. A copy never ends the broker.
        self._owner_pid = os.getpid()
        self._is_handle = False
        # Whether the object was pickled, and the number of forks at the start.
        self._is_copied, self._fork_count = False, 0

    @property
    def data(self) -> Path:
        """The directory of the store; `start` creates a temporary one."""
        if self._given_data is not None:
            return self._given_data
        if self._temporary is None:
            raise LocalBrokerError(f"the broker has no store yet; {_START_FIRST}")
        return self._temporary.path

    @property
    def endpoint(self) -> str:
        """The address for clients, host:port; a restart keeps it."""
        return self._address(self._port)

    @property
    def name_server(self) -> str:
        """The broker's name server, host:port, for RocketMQ's clients; a restart keeps it.

        It is `nameServer` of the connector, `setNamesrvAddr` of Java clients, `-n` of `mqadmin`.
        """
        return self._address(self._name_server_port)

    @property
    def remoting_endpoint(self) -> str:
        """The address of RocketMQ's remoting protocol, host:port, such as `mqadmin`'s `-b`.

        A restart keeps it. Clients get it from the name server.
        """
        return self._address(self._remoting_port)

    def _address(self, port: int) -> str:
        if not self._has_served:
            raise LocalBrokerError(f"the broker has no endpoint yet; {_START_FIRST}")
        return f"127.0.0.1:{port}"

    @property
    def tls_endpoint(self) -> str:
        """The address for clients with TLS, host:port; a restart keeps it.

        Raises LocalBrokerError without `tls`.
        """
        if self._tls is None:
            raise LocalBrokerError(_NO_TLS)
        return self._address(self._tls_port)

    @property
    def tls_ca_file(self) -> str:
        """The file by which clients verify the broker, such as the connector's `tlsCaFile`.

        Raises LocalBrokerError without `tls`, and for a `LocalTls` without `ca`.
        """
        if self._tls is None:
            raise LocalBrokerError(_NO_TLS)
        if self._tls.certificate is None:
            return str(self.data / "config" / "tls" / "ca.pem")
        if self._tls.ca is None:
            raise LocalBrokerError(
                "tls_ca_file is unknown: LocalTls names a certificate without its authority; set "
                "LocalTls.ca"
            )
        return str(self._tls.ca)

    @property
    def http_endpoint(self) -> str:
        """The HTTP address, host:port; a restart keeps it.

        Raises LocalBrokerError without `http_port`.
        """
        if self._http_port is None:
            raise LocalBrokerError("the broker has no HTTP; give LocalBroker http_port=0")
        return self._address(self._http_port)

    @property
    def console_url(self) -> str:
        """The console's address, for a browser on this machine; a restart keeps it.

        Raises LocalBrokerError without `http_port`.
        """
        return f"http://{self.http_endpoint}/"

    @property
    def pid(self) -> int:
        """The process id of the broker."""
        self._check_usable()
        return self._pid

    def log_text(self) -> str:
        """Returns the text that the broker has logged so far."""
        try:
            return (self.data / LOG_NAME).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError as error:
            raise LocalBrokerError(f"the broker has logged nothing; {_START_FIRST}") from error

    def _check_usable(self) -> None:
        """Raises LocalBrokerError if the broker does not run; a copy cannot check that."""
        process = self._process
        if self._has_served and not self._is_owner:
            return
        if process is None:
            raise LocalBrokerError(f"the broker is not running; {_START_FIRST}")
        if process.exit_code is not None:
            raise LocalBrokerError(
                f"the broker has ended with exit code {process.exit_code}; the end of its log: "
                f"{process.last_log_lines()}"
            )

    @property
    def _is_owner(self) -> bool:
        return not self._is_handle and self._owner_pid == os.getpid()

    def _check_owner(self) -> None:
        """Raises LocalBrokerError if this process has only a copy of a started broker."""
        if self._has_served and not self._is_owner:
            raise LocalBrokerError(
                f"the broker belongs to process {self._owner_pid}, which alone starts and stops "
                "it. Call its other methods here, or make a LocalBroker of this process's own"
            )

    def __getstate__(self) -> dict[str, object]:
        """Returns the state of a copy: a handle on the started broker, or a broker to start."""
        state = self.__dict__ | {
            "_process": None,
            "_temporary": None,
            "_helper": None,
            "_reserved_ports": [],
        }
        if self._has_served:
            self._is_copied = True
            state["_is_handle"] = True
            if self._temporary is not None:
                state["_given_data"] = self._temporary.path
        return state

    # --- The process ---

    def start(self) -> LocalBroker:
        """Starts the process and waits until it serves; a `with` statement does the same."""
        self._check_owner()
        if self._process is not None:
            if self._process.exit_code is None:
                raise LocalBrokerError(
                    f"the broker is running already at {self.endpoint}; use it, or call restart()"
                )
            self.kill()
        self._make_store()
        self._owner_pid = os.getpid()
        atexit.register(self._end)
        try:
            self._port = self._port or self._reserve_port()
            self._remoting_port = self._remoting_port or self._reserve_port()
            self._name_server_port = self._name_server_port or self._reserve_port()
            if self._tls is not None:
                self._tls_port = self._tls_port or self._reserve_port()
            if self._http_port == 0:
                self._http_port = self._reserve_port()
            if self._ha_port == 0:
                self._ha_port = self._reserve_port()
            self._process = BrokerProcess(
                broker_command(self._settings()), self.data / LOG_NAME, self._start_times
            )
        except BaseException:
            # The store of an earlier start is kept, for another start.
            if not self._has_served:
                self._end()
            raise
        self._pid = self._process.pid
        self._has_served, self._fork_count = True, fork_count()
        return self

    def _make_store(self) -> None:
        """Creates the store's directory and its users' file. Raises LocalBrokerError."""
        try:
            if self._given_data is None and self._temporary is None:
                self._temporary = TemporaryStore.make()
            self.data.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
            if self._users:
                _write_users(self.data, self._users)
        except BrokerError as error:
            raise LocalBrokerError(error.remark) from error
        except OSError as error:
            where = self._given_data or "a temporary directory"
            raise LocalBrokerError(
                f"the store, or its users' file, cannot be written in {where} ({error.strerror}); "
                "name another data directory"
            ) from error

    def _reserve_port(self) -> int:
        port = ReservedPort()
        self._reserved_ports.append(port)
        return port.number

    def _settings(self) -> dict[str, object]:
        """Returns the settings of the broker's process, which depend on no environment."""
        return {
            "data": str(self.data),
            "temporary": None if self._temporary is None else self._temporary.token,
            "port": self._port,
            "remoting_port": self._remoting_port,
            "name_server_port": self._name_server_port,
            "advertise_host": "127.0.0.1",
            "advertise_port": self._remoting_port,
            "http_port": self._http_port,
            "tls": None if self._tls is None else self._tls.settings(self._tls_port),
            "replication": {
                "role": self._role.value,
                "broker_id": self._broker_id,
                "master": self._master,
                "port": self._ha_port,
                "in_sync_replicas": self._in_sync_replicas,
            },
            "flush": self._flush.value,
            "commit_log_segment_bytes": self._commit_log_segment_bytes,
            "new_segment_bytes": TEST_SEGMENT_BYTES,
            # A test or notebook may run on a machine with a slow disk.
            "sync_flush_timeout_ms": SYNC_FLUSH_TIMEOUT_MS,
            "clock_ahead_ms": self._clock_ahead_ms,
            "message_delay_level": self._message_delay_level,
        }

    def stop(self) -> None:
        """Stops the broker cleanly with SIGTERM; `start` reuses the store.

        The time limit is 15 s on an idle machine. After it, the call kills the broker and raises
        LocalBrokerError.
        """
        process = self._ending()
        if process is not None:
            process.stop()

    def _ending(self) -> BrokerProcess | None:
        """Returns the process, which the caller ends. Raises LocalBrokerError in a copy."""
        self._check_owner()
        process = self._process
        if process is None:
            return None
        if process.exit_code is None and (self._is_copied or self._fork_count != fork_count()):
            self._read_lead()
        self._process = None
        return process

    def kill(self) -> None:
        """Kills the process, as a crash does."""
        process = self._ending()
        if process is not None:
            process.kill()

    def restart(self) -> None:
        """Stops the broker if it runs and starts it again on the same port and directory."""
        self.stop()
        self.start()

    def __enter__(self) -> LocalBroker:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._is_owner:
            return
        try:
            self.stop()
        finally:
            self._end()

    def _end(self) -> None:
        """Kills the process and removes the temporary store.

        A forked process has inherited this exit handler; it does nothing there.
        """
        if not self._is_owner:
            return
        self.kill()
        temporary, self._temporary = self._temporary, None
        if temporary is not None:
            temporary.remove()
        while self._reserved_ports:
            self._reserved_ports.pop().close()
        atexit.unregister(self._end)

    # --- Calls ---

    @call
    def reset(self) -> None:
        """Removes all contents of the broker, which keeps running.

        The contents are:
        - all topics with their messages, delayed ones included;
        - all consumer groups with settings, progress, retries and dead letters;
        - open transactions and transactions that were given up;
        - the state of exactly-once writers.

        The clock stays.
        """
        with self._connection() as connection:
            contents.clear(connection, contents.Contents())

    @call
    def _contents(self) -> contents.Contents:
        with self._connection() as connection:
            return contents.contents(connection)

    @call
    def _clear(self, kept: contents.Contents) -> None:
        """Removes all contents but `kept`."""
        with self._connection() as connection:
            contents.clear(connection, kept)

    @contextmanager
    def _connection(self) -> Iterator[BrokerConnection]:
        """Connects to the running broker. Raises LocalBrokerError if it does not run."""
        self._check_usable()
        admins = (each for each in self._users if each.role == ADMIN)
        keys = next(((each.access_key, each.secret_key) for each in admins), (None, None))
        with BrokerConnection(self.endpoint, *keys) as connection:
            yield connection

    @contextmanager
    def _declared_errors(self) -> Iterator[None]:
        """Turns errors of its block into LocalBrokerError."""
        try:
            with super()._declared_errors():
                yield
        except LocalBrokerError:
            raise
        except BrokerError as error:
            raise LocalBrokerError(error.remark) from error


_NO_TLS = "the broker has no TLS; give LocalBroker tls=True"
_START_FIRST = "call start(), or use it in a with statement"


def _choice(kind: type[Choice], name: str, given: str) -> Choice:
    """Returns a value of an enumeration. Raises ParameterIllegalError."""
    try:
        return kind(given)
    except ValueError as error:
        accepted = " or ".join(each.value for each in kind)
        raise ParameterIllegalError(name, given, accepted) from error


def _users_of(users: object) -> tuple[BrokerUser, ...]:
    """Returns the users. Raises ParameterIllegalError for other objects."""
    given = tuple(users) if isinstance(users, Iterable) else (users,)
    for each in given:
        if not isinstance(each, BrokerUser):
            raise ParameterIllegalError("users", each, "a list of BrokerUser")
    return given


def _write_users(data: Path, users: Sequence[BrokerUser]) -> None:
    """Creates or changes users in a data directory. Raises UserError, ConfigFileError, OSError."""
    table = UserTable(BrokerConfig(data).users_file)
    table.load()
    known = {each.access_key for each in table.messages()}
    # The first user must be an admin.
    for user in sorted(users, key=lambda each: each.role != ADMIN):
        change = admin_pb2.User(
            access_key=user.access_key,
            secret_key=user.secret_key,
            role=user.role,
            topic_permissions=user.topics,
            group_permissions=user.groups,
        )
        table.update_now(change, create=user.access_key not in known)

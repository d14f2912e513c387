"""Process of a broker: its directory, its signals, and its end.

    python -m rocketpy_broker.broker_program SETTINGS

starts a LocalBroker's broker by settings in JSON, without the imports of the command line. State is
below the store's directory; the store's modules describe what a crash does.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import select
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketpy_broker.config import BrokerConfig, BrokerRole, ServerTls
from rocketpy_broker.embedded import ephemeral
from rocketpy_broker.embedded.temporary_store import PREFIX, TemporaryStore
from rocketpy_broker.errors import BrokerError, ParameterIllegalError
from rocketpy_broker.runtime import event_loop, process_tuning
from rocketpy_broker.runtime.process_tuning import READY_PREFIX
from rocketpy_broker.runtime.standard_output import print_line
from rocketpy_broker.services.replication.options import replication_of
from rocketpy_broker.store.check.read_only import StoreSizes
from rocketpy_broker.store.cleaner import CleanPolicy
from rocketpy_broker.store.config import FlushDiskType, FlushTimes
from rocketpy_broker.store.delay_levels import DEFAULT_LEVELS, DelayLevels
from rocketpy_proto.counts import counted
from rocketpy_proto.record.block.arrays import leave_pandas_out
from rocketpy_proto.texts import address_text

if TYPE_CHECKING:
    from rocketpy_broker.broker import Ready

INPUT_BYTES = 4096
SEGMENT_BYTES_MIN = 4096
LOG_LEVEL = "ROCKETPY_LOG_LEVEL"
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class LogLevelName(str, Enum):
    """Levels of the broker's log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def run(
    config: Callable[[Path], BrokerConfig],
    data: Path | None,
    token: str | None,
    *,
    stop_at_eof: bool,
    log_level: str,
    parent_pid: int | None = None,
) -> None:
    """Runs a broker until SIGTERM, SIGINT or SIGHUP; without `data` its store is temporary.

    `token` is that of a LocalBroker's temporary store. A broker with a `parent_pid` is ephemeral:
    it also ends when that process ends, or when a pipe that is its input ends. It prints only its
    addresses.
    """
    for number in _stop_signals():
        # Until the event loop handles signals, an exit removes a temporary store.
        signal.signal(number, lambda given, _: sys.exit(128 + given))
    logging.basicConfig(format=LOG_FORMAT, level=log_level.upper())
    process_tuning.tune()
    try:
        with _store_directory(data, token) as folder:
            event_loop.run(_run(config(folder), parent_pid, stop_at_eof=stop_at_eof))
    except (BrokerError, OSError) as error:
        sys.exit(f"rocketpy broker: {error}")


def _stop_signals() -> list[signal.Signals]:
    """Returns the signals that stop a broker: SIGHUP is one, unless `nohup` ignores it."""
    numbers = [signal.SIGTERM, signal.SIGINT]
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return numbers if is_ignored else [*numbers, signal.SIGHUP]


@contextmanager
def _store_directory(data: Path | None, token: str | None) -> Iterator[Path]:
    """Yields the store's directory and removes a temporary one at the end.

    A LocalBroker's directory is removed only if standard input has ended: then the program that
    started the broker has ended.
    """
    if data is None:
        with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
            yield Path(folder)
        return
    temporary = None if token is None else TemporaryStore(data, token)
    try:
        yield data
    finally:
        if temporary is not None and _input_has_ended():
            temporary.remove()


def _input_has_ended() -> bool:
    readable, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(readable) and not os.read(sys.stdin.fileno(), INPUT_BYTES)


async def _run(config: BrokerConfig, parent_pid: int | None, *, stop_at_eof: bool) -> None:
    """Runs a broker; with `parent_pid` it is ephemeral."""
    from rocketpy_broker.broker import Broker

    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    is_ephemeral = parent_pid is not None
    if stop_at_eof or (is_ephemeral and ephemeral.is_input_pipe()):
        _watch_input(loop, stopped)
    if parent_pid is not None:
        ephemeral.stop_with_parent(loop, stopped, parent_pid)
    for number in _stop_signals():
        loop.add_signal_handler(number, stopped.set)
    ready: asyncio.Future[Ready] = loop.create_future()
    ready.add_done_callback(lambda _: process_tuning.freeze_start_objects())
    print_ready = _print_addresses if is_ephemeral else _print_ready
    ready.add_done_callback(lambda done: print_ready(config, done.result()))
    broker = Broker(config)
    if not broker.services.hooks:  # Only a hook may pass pandas objects to Arrow.
        leave_pandas_out()
    await broker.serve_until(stopped, ready)
    while (promoted := broker.promoted) is not None and not stopped.is_set():
        broker = Broker(promoted)
        await broker.serve_until(stopped, loop.create_future())
    if not is_ephemeral:
        print_line("rocketpy broker stopped")


def _watch_input(loop: asyncio.AbstractEventLoop, stopped: asyncio.Event) -> None:
    try:
        loop.add_reader(sys.stdin, lambda: _stop_at_end_of_input(loop, stopped))
    except PermissionError:
        # The input is a file or /dev/null. The event loop cannot watch it; it counts as ended.
        stopped.set()


def _stop_at_end_of_input(loop: asyncio.AbstractEventLoop, stopped: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), INPUT_BYTES):
        loop.remove_reader(sys.stdin)
        stopped.set()


def _print_addresses(config: BrokerConfig, ready: Ready) -> None:
    print_line(json.dumps(ephemeral.addresses(config, ready)))


def _print_ready(config: BrokerConfig, ready: Ready) -> None:
    recovery = ready.recovery
    how = "after a crash" if recovery.abnormal else "after a clean stop"
    if recovery.abnormal or recovery.bytes_dropped:
        logging.getLogger(__name__).warning(
            "recovered %s: %s checked, %s of a torn tail dropped",
            how,
            counted(recovery.records_scanned, "record"),
            counted(recovery.bytes_dropped, "byte"),
        )
    print_line(
        f"{READY_PREFIX}{address_text(ready.host, ready.port)} data={config.data} "
        f"flush={config.flush_disk_type.value}"
        + _port_text("remoting", ready.host, ready.remoting_port)
        + _port_text("name_server", ready.host, ready.name_server_port)
        + _port_text("http", ready.host, ready.http_port)
        + _port_text("tls", ready.host, ready.tls_port)
        + _port_text("ha", ready.host, ready.ha_port)
        + ("" if ready.console_url is None else f" console={ready.console_url}")
    )


def _port_text(name: str, host: str, port: int | None) -> str:
    return "" if port is None else f" {name}={address_text(host, port)}"


def _local_config(given: dict[str, Any], folder: Path) -> BrokerConfig:
    """Returns the configuration of a LocalBroker's broker. Raises ParameterIllegalError."""
    segment_bytes = given.pop("commit_log_segment_bytes")
    if segment_bytes is not None and segment_bytes < SEGMENT_BYTES_MIN:
        accepted = f"at least {SEGMENT_BYTES_MIN}"
        raise ParameterIllegalError("commit_log_segment_bytes", segment_bytes, accepted)
    sizes = StoreSizes.of(folder, segment_bytes, None, given.pop("new_segment_bytes"))
    tls, replication = given.pop("tls"), given.pop("replication")
    role = BrokerRole(replication.pop("role"))
    return BrokerConfig(
        data=folder,
        flush_disk_type=FlushDiskType(given.pop("flush")),
        commit_log_segment_bytes=sizes.segment_bytes,
        consume_queue_file_bytes=sizes.queue_file_bytes,
        delay_levels=DelayLevels.parse(given.pop("message_delay_level") or DEFAULT_LEVELS),
        flush_times=FlushTimes(sync_flush_timeout_ms=given.pop("sync_flush_timeout_ms")),
        # The program may run on a machine with a full disk.
        clean_policy=CleanPolicy(clean_forcibly_ratio=0.95, warning_level_ratio=1.0),
        tls=ServerTls() if tls is None else _local_tls(tls),
        replication=replication_of(role, **replication, has_name_servers=False),
        **given,
    )


def _local_tls(given: dict[str, Any]) -> ServerTls:
    """Returns the TLS of a LocalBroker's broker. Raises ParameterIllegalError."""
    certificate, key, client_ca = (None if path is None else Path(path) for path in given["files"])
    return ServerTls.of(
        None, certificate, key, client_ca, given["port"], is_self_signed=certificate is None
    )


def main() -> None:
    """Runs a LocalBroker's broker."""
    given = json.loads(sys.argv[1])
    data, token = Path(given.pop("data")), given.pop("temporary")
    level = os.environ.get(LOG_LEVEL) or "warning"
    accepted = [each.value for each in LogLevelName]
    if level.lower() not in accepted:
        error = ParameterIllegalError(LOG_LEVEL, level, ", ".join(accepted))
        sys.exit(f"rocketpy broker: {error}")
    run(partial(_local_config, given), data, token, stop_at_eof=True, log_level=level)


if __name__ == "__main__":
    main()

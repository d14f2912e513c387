"""The alignment of a stopped slave with its master."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable
from pathlib import Path

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.runtime.clock import Clock, SystemClock, sleep
from rocketpy_broker.server.ha.client import HaClient
from rocketpy_broker.services.registration.addresses import host_and_port
from rocketpy_broker.services.slave.alignment import Alignment, LogAlignment, check_promotion
from rocketpy_broker.services.slave.errors import MasterFailedError, MasterRefusedError
from rocketpy_broker.services.slave.master import Connect, Master, MasterFacts
from rocketpy_broker.services.slave.progress_files import reset_progress
from rocketpy_broker.store.check.read_only import StoreSizes
from rocketpy_broker.store.config import FlushDiskType, StoreConfig
from rocketpy_broker.store.files.promotion import PromotionFile
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_proto.record import Host

# A master that has just started may fail at first.
FACTS_TRIES, RETRY_MS = 5, 1_000


def aligned(
    folder: Path,
    sizes: StoreSizes,
    master: str,
    connect: Connect,
    advance: Callable[[int], None],
    *,
    is_dry: bool,
) -> Alignment:
    """Compares a store with the master at `master` (host:port); cuts the store unless `is_dry`.

    `connect` returns connections to the master.

    Raises MasterLostError, MasterRefusedError, ParameterIllegalError, StoreLockedError,
    StoreDirectoryError, OSError.
    """
    host_and_port(master)
    if not (folder / "commitlog").is_dir():
        raise StoreDirectoryError(folder, "is no store", "give the --data directory of the slave")
    flush = FlushDiskType.SYNC_FLUSH
    config = StoreConfig(folder, sizes.segment_bytes, sizes.queue_file_bytes, flush)
    store = MessageStore(config, SystemClock(), Host(ipaddress.IPv4Address(0), 0))
    store.open()
    try:
        work = align_open(store, master, connect, advance, SystemClock(), is_dry=is_dry)
        found = asyncio.run(work)
    finally:
        store.close()
    return found


async def align_open(
    store: MessageStore,
    address: str,
    connect: Connect,
    advance: Callable[[int], None],
    clock: Clock,
    *,
    is_dry: bool,
) -> Alignment:
    """Aligns an open store as `aligned` does; the caller has to close the store afterwards."""
    host, _ = host_and_port(address)
    master = Master(address, connect(address))
    try:
        facts = await _facts(master, clock)
    finally:
        master.close()
    if facts.state is not None and facts.state.store_id != store.store_id:
        raise MasterRefusedError(
            f"it has store {facts.state.store_id:.100}, and the directory has store "
            f"{store.store_id}: they have nothing in common. Name the master of this store"
        )
    facts.check_role()
    promotion = PromotionFile(store.config.folder)
    facts.check_epoch(promotion.epoch)

    def open_stream(
        to: str, port: int, receive: Callable[[int, memoryview], None]
    ) -> Awaitable[HaClient]:
        return HaClient.connect(to, port, receive, clock)

    alignment = LogAlignment(store, facts, host, open_stream, advance)
    found = await alignment.compare()
    known = promotion.load()
    if facts.state is None and known is not None:
        check_promotion(found, known)
    if is_dry:
        return found
    aligned = found if found.common_end == found.own_end else alignment.cut(found)
    # The store belongs to a slave again.
    promotion.follow(facts.epoch, aligned.common_end, clock.now_ms())
    (store.config.folder / "config" / "delayOffset.json").unlink(missing_ok=True)
    reset_progress(store.config.folder / "config")
    return aligned


async def _facts(master: Master, clock: Clock) -> MasterFacts:
    for _ in range(FACTS_TRIES - 1):
        try:
            return await master.facts()
        except MasterFailedError:
            await sleep(clock, RETRY_MS)
    return await master.facts()

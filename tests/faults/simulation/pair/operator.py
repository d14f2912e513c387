"""An operator of a pair: restarts, promotes, aligns, and looks at the result of each."""

from __future__ import annotations

import contextlib
import ipaddress
from collections import Counter
from dataclasses import replace
from enum import Enum

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.server.ha.aligner import align_open
from rocketpy_broker.server.remoting.client import RemotingClient
from rocketpy_broker.services.registration.addresses import host_and_port
from rocketpy_broker.services.slave.alignment import Alignment
from rocketpy_broker.store.config import FlushDiskType, StoreConfig
from rocketpy_broker.store.files.promotion import SLAVE, PromotionFile
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.record import Host
from rocketpy_proto.rocketpy.v1 import admin_pb2
from tests.faults.simulation.machine import SEGMENT_BYTES, MachineGoneError
from tests.faults.simulation.pair.clients import GROUP, Clients
from tests.faults.simulation.pair.judge import FailOver
from tests.faults.simulation.pair.log import RawLog
from tests.faults.simulation.pair.network import Process, process
from tests.faults.simulation.pair.sides import Side, Sides, as_slave_of
from tests.faults.simulation.producers import QUEUES, TOPIC

WAIT_MS, LOOK_MS = 600_000, 250
PROMOTED_ROLES = ("ASYNC_MASTER", "SYNC_MASTER")


class Way(Enum):
    """The ways in which an old master becomes a slave."""

    START = "start"
    ALIGN = "align"
    THROW_AWAY = "throw away"


class Operator:
    """The operator; `master` is the side that is, or was last, the master."""

    def __init__(self, sides: Sides, clients: Clients) -> None:
        self._sides = sides
        self._clients = clients
        self.master = sides.a
        self.fail_overs: list[FailOver] = []
        # True while the other side has been a master, and is no slave yet.
        self.is_slave_missing = False
        self.is_busy = False

    @property
    def slave(self) -> Side:
        """The other side."""
        return self._sides.other(self.master)

    @property
    def failure(self) -> str:
        """The reason for which the slave does not follow; empty without one."""
        services = self.slave.services
        state = None if services is None else services.slave_state
        return "" if state is None else state.failure

    def look(self) -> None:
        """Notes a slave that has all of its master's log."""
        slave, master = self.slave, self.master
        if slave.services is None or master.services is None or slave.services.slave_state is None:
            return
        ends = [each.store.positions().log_end for each in (slave, master)]
        if slave.services.slave_state.is_connected and ends[0] == ends[1]:
            slave.was_in_sync = True

    def restart(self, side: Side) -> None:
        """Starts a side that is down."""
        if side.life is None and not (side is self.slave and self.is_slave_missing):
            side.start()

    # --- Fail-over ---

    async def fail_over(self, *, is_power_cut: bool, is_slave_cut: bool) -> None:
        """Ends the master, with `is_slave_cut` also the slave, and promotes the slave."""
        new, old = self.slave, self.master
        services = new.services
        if services is None or services.slave_state is None or not new.was_in_sync:
            return
        old.crash(is_power_cut=is_power_cut)
        if is_slave_cut:
            new.crash(is_power_cut=True)
        self._sides.heal()
        self._clients.epoch += 1
        self.master, self.is_slave_missing = new, True
        old.replication = as_slave_of(new, old.replication)
        await self._promote(new, self._sides.chance.choice(PROMOTED_ROLES))

    async def _promote(self, side: Side, role: str) -> None:
        """Promotes a slave, again if it crashes meanwhile."""
        request = admin_pb2.PromoteRequest(broker_role=role, force=True)
        left_ms = WAIT_MS
        while not side.is_serving_master:
            left_ms -= LOOK_MS
            assert left_ms > 0, "the slave cannot be promoted"
            services = side.services
            if side.life is None:
                side.start()
            if services is not None:
                with contextlib.suppress(BrokerError, OSError, MachineGoneError):
                    await side.call(services.promotion.promote(request))
            await self._sides.pause(LOOK_MS)
        promotion = PromotionFile(side.disk.folder).load()
        assert promotion is not None
        self._sides.say("promoted", side.name, promotion)
        self.fail_overs.append(FailOver(self._clients.epoch, promotion.log_end))
        await self.until_master()

    async def until_master(self) -> None:
        """Waits until the master serves, and starts it again if necessary."""
        left_ms = WAIT_MS
        while not self.master.is_serving_master:
            if self.master.life is None:
                self.master.start()
            await self._sides.pause(LOOK_MS)
            left_ms -= LOOK_MS
            assert left_ms > 0, "the master does not serve"
        self._check_offsets(self.master)

    def _check_offsets(self, side: Side) -> None:
        """Compares committed offsets with the queues: none may be beyond its queue."""
        services = side.services
        assert services is not None
        ends: dict[QueueKey, int] = {}
        for queue in (QueueKey(TOPIC, number) for number in range(QUEUES)):
            ends[queue] = side.store.range_of(queue).max_offset
            committed = services.offsets.committed.query(GROUP, *queue)
            if committed > ends[queue]:
                self._clients.faults.append(
                    f"{side.name}: {GROUP} has committed {committed} of {queue}, which ends at "
                    f"{ends[queue]}"
                )
        self._clients.forget_places(ends)

    # --- The old master comes back ---

    async def bring_slave(self, way: Way) -> None:
        """Makes the other side a slave of the master."""
        side = self.slave
        if side.life is not None:
            await side.stop()
        promotion = PromotionFile(side.disk.folder).load()
        if way is Way.START and promotion is not None and promotion.role != SLAVE:
            # It would be a second master.
            way = Way.ALIGN
        if way is Way.ALIGN:
            try:
                await self._align(side)
            except (BrokerError, OSError) as error:
                self._sides.say("not aligned", side.name, error)
                if "empty directory" not in str(error):
                    return
                way = Way.THROW_AWAY
        if way is Way.THROW_AWAY:
            self._sides.say("thrown away", side.name)
            side.throw_away()
        self.is_slave_missing = side.was_in_sync = False
        side.replication = as_slave_of(self.master, side.replication)
        side.start()

    async def _align(self, side: Side) -> None:
        token = process.set(Process(side.host))
        self._sides.network.dark.discard(side.host)
        self._sides.network.changed()
        config = StoreConfig(
            side.disk.folder, SEGMENT_BYTES, 2_000, FlushDiskType.SYNC_FLUSH, memory_bytes=1 << 30
        )
        host = Host(ipaddress.IPv4Address(0), 0)
        store = MessageStore(replace(config, index_slot_count=8), side.clock, host)
        store.open()
        try:
            own = RawLog.of(side.disk.folder, store.positions().log_end)
            found = await align_open(
                store,
                self.master.address,
                lambda address: RemotingClient(*host_and_port(address), side.clock),
                lambda _: None,
                side.clock,
                is_dry=False,
            )
            if self.master.services is not None:
                self._check_alignment(side, own, found)
        finally:
            store.close()
            process.reset(token)

    def _check_alignment(self, side: Side, own: RawLog, found: Alignment) -> None:
        """Compares a report of an alignment with both logs."""
        master = RawLog.of(self.master.disk.folder, self.master.store.positions().log_end)
        self._sides.say("aligned", side.name, found.common_end, found.own_end)
        end = own.common_end(master)
        topics = Counter(each.topic for each in own.entries(found.common_end))
        kept = b"".join(path.read_bytes() for path in found.kept)
        for name, is_right in (
            ("end of the common part", found.common_end == end),
            ("own end", found.own_end == own.end),
            ("counts of messages", dict(found.message_counts) == dict(topics)),
            ("kept bytes", kept == own.used_after(end)),
        ):
            if not is_right:
                self._clients.faults.append(
                    f"{side.name}: the report of align has a wrong {name}: {found}, and the logs "
                    f"part at {end}, with {topics} after it"
                )

    # --- Calm ---

    async def follow(self) -> None:
        """Waits until the slave has its master's log, and repairs it as its failure says."""
        self._sides.say("waits for calm")
        left_ms, repairs = WAIT_MS, 0
        while not self._is_same():
            await self._sides.pause(LOOK_MS)
            left_ms -= LOOK_MS
            for side in self._sides.both:
                self.restart(side)
            await self.until_master()
            failure = self.failure
            ends = [each.services and each.store.positions() for each in self._sides.both]
            assert left_ms > 0, f"the slave does not follow its master: {failure or ends}"
            is_diverged, is_strange = "store align" in failure, "empty directory" in failure
            if self.is_slave_missing or is_diverged or is_strange:
                repairs += 1
                assert repairs < 10, f"the slave needs more than {repairs} repairs: {failure}"
                await self.bring_slave(Way.THROW_AWAY if is_strange else Way.ALIGN)

    def _is_same(self) -> bool:
        services = self.slave.services
        if services is None or self.master.services is None or services.slave_state is None:
            return False
        own, theirs = self.slave.store.positions(), self.master.store.positions()
        is_same = own.log_end == theirs.log_end == own.dispatched_end
        return is_same and services.slave_state.is_connected

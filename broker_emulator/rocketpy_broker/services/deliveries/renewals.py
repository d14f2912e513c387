"""Renewals of deliveries, while their client is alive.

A push consumer names no invisible time: the broker renews it, RENEWED_MS at a time. Renewals end
when the message is acknowledged or changed. They also end when the client has gone, or after
RENEWED_MS_MAX. The client keeps its first handle. Deliveries of a client that has gone are visible
after GONE_MS. After RENEWED_MS_MAX a message is visible after its group's delay for that attempt. A
client is alive while it is a member of the group, or has received or acknowledged lately. State in
memory: up to COUNT_MAX deliveries, OF_CLIENT_MAX of one client; further ones are not renewed. A
restart forgets them, and the messages come again at the end of their invisible time.
Source: DefaultReceiptHandleManager, docs/design/grpc_v2_semantics.md section 9.4.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass
from itertools import islice, takewhile

from rocketpy_broker.errors import BrokerError, StoreError
from rocketpy_broker.runtime.clock import Clock, resolve, sleep, wait_until_set
from rocketpy_broker.runtime.log_throttle import LogThrottle
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.groups.clients.members import EXPIRY_MS
from rocketpy_broker.services.groups.clients.registry import ClientService
from rocketpy_broker.services.groups.manager import SubscriptionGroupManager
from rocketpy_broker.services.groups.retry_policy import retry_delay_ms
from rocketpy_broker.services.receipts.ack_service import AckService
from rocketpy_broker.services.receipts.handle import Receipt
from rocketpy_broker.store.values import QueueKey

logger = logging.getLogger(__name__)
RENEWED_MS, RENEWED_MS_MAX = 60_000, 3 * 3_600_000
SCAN_MS, AHEAD_MS = 1_000, 10_000
GONE_MS = 1_000
COUNT_MAX, OF_CLIENT_MAX = 100_000, 10_000
# Renewals of one scan.
DUE_MAX = 10_000
# Renewals that wait for the disk together.
TOGETHER_MAX = 100


@dataclass(slots=True)
class Renewed:
    """A delivery that is renewed; `receipt` is its present one.

    `begin_ms` and `renewed_ms`, its last renewal, are monotonic: wall time may jump back.
    """

    client_id: str
    group: str
    queue: QueueKey
    receipt: Receipt
    attempt: int
    begin_ms: float
    renewed_ms: float
    is_client_gone: bool = False
    running: asyncio.Future[None] | None = None


class RenewalService:
    """The renewed deliveries, by handle."""

    def __init__(
        self,
        acks: AckService,
        groups: SubscriptionGroupManager,
        clients: ClientService,
        clock: Clock,
    ) -> None:
        self._acks = acks
        self._groups = groups
        self._clients = clients
        self._clock = clock
        self._log_throttle = LogThrottle(clock)
        # The next one to renew is the first.
        self._renewed: OrderedDict[str, Renewed] = OrderedDict()
        self._has_some = asyncio.Event()
        self._of_client: dict[str, dict[str, None]] = {}
        # The last call of each client with deliveries, monotonic.
        self._seen_ms: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._renewed)

    def add(self, handle: str, renewed: Renewed) -> None:
        """Renews a delivery from now on; does nothing at a limit."""
        count = len(self._of_client.get(renewed.client_id, ()))
        if len(self._renewed) < COUNT_MAX and count < OF_CLIENT_MAX:
            self._renewed[handle] = renewed
            self._has_some.set()
            self._of_client.setdefault(renewed.client_id, {})[handle] = None
            self._seen_ms[renewed.client_id] = self._clock.monotonic_ms()

    async def take(self, handle: str) -> Renewed | None:
        """Ends the renewal of a delivery; returns it with its present receipt, or None."""
        renewed = self._pop(handle)
        if renewed is not None and renewed.running is not None:
            try:
                await asyncio.wait([renewed.running])
            except asyncio.CancelledError:
                self.put_back(handle, renewed)
                raise
        return renewed

    def _pop(self, handle: str) -> Renewed | None:
        renewed = self._renewed.pop(handle, None)
        if renewed is not None:
            handles = self._of_client[renewed.client_id]
            del handles[handle]
            if not handles:
                del self._of_client[renewed.client_id], self._seen_ms[renewed.client_id]
        return renewed

    def put_back(self, handle: str, renewed: Renewed) -> None:
        """Continues a renewal that `take` has ended."""
        self.add(handle, renewed)
        if handle in self._renewed:
            self._renewed.move_to_end(handle, last=False)

    def seen(self, client_id: str) -> None:
        """Notes a call of a client."""
        if client_id in self._seen_ms:
            self._seen_ms[client_id] = self._clock.monotonic_ms()

    def left(self, group: str, client_id: str) -> None:
        """Ends the renewals of a client that has left a group."""
        for handle in self._of_client.get(client_id, ()):
            if self._renewed[handle].group == group:
                self._renewed[handle].is_client_gone = True
                self._renewed.move_to_end(handle, last=False)

    # --- The task ---

    async def run(self) -> None:
        """Renews deliveries at intervals until cancelled; sleeps while there are none."""
        while True:
            await wait_until_set(self._has_some, self._clock)
            await sleep(self._clock, SCAN_MS)
            await self._renew_due()
            if not self._renewed:
                self._has_some.clear()

    async def _renew_due(self) -> None:
        """Renews all deliveries that would be visible in AHEAD_MS."""
        limit_ms = self._clock.now_ms() + AHEAD_MS
        renewed_ms = self._clock.monotonic_ms() + AHEAD_MS - RENEWED_MS

        def is_due(handle: str) -> bool:
            renewed = self._renewed[handle]
            is_late = renewed.receipt.visible_ms <= limit_ms or renewed.renewed_ms <= renewed_ms
            return renewed.is_client_gone or is_late

        due = list(takewhile(is_due, islice(self._renewed, DUE_MAX)))
        for begin in range(0, len(due), TOGETHER_MAX):
            await asyncio.gather(*map(self._renew, due[begin : begin + TOGETHER_MAX]))

    async def _renew(self, handle: str) -> None:
        """Renews or ends one delivery. After an error of the store the next scan tries again."""
        await take_slot()
        renewed = self._renewed.get(handle)
        if renewed is None:
            return
        last_ms, before = self._last_ms(renewed), renewed.receipt
        renewed.running = asyncio.get_running_loop().create_future()
        is_over = last_ms is not None
        invisible_ms = RENEWED_MS if last_ms is None else last_ms
        try:
            renewed.receipt = await self._acks.change_invisible_time(
                renewed.group, renewed.queue, before.offset, before, invisible_ms
            )
            # Of an ordered pop: the queue has a newer delivery.
            is_over |= renewed.receipt == before
        except StoreError as error:
            is_over = before.visible_ms <= self._clock.now_ms()
            if self._log_throttle.may_log():
                logger.warning("a delivery could not be renewed: %s", error)
        except BrokerError:
            # The message, its topic or its group is gone.
            is_over = True
        finally:
            resolve(renewed.running)
            renewed.running = None
        if is_over and handle in self._renewed:
            self._pop(handle)
        elif handle in self._renewed and renewed.receipt is not before:
            renewed.renewed_ms = self._clock.monotonic_ms()
            self._renewed.move_to_end(handle)

    def _last_ms(self, renewed: Renewed) -> int | None:
        """Returns the last invisible time of a renewal that ends; None if it continues."""
        now_ms = self._clock.monotonic_ms()
        if renewed.is_client_gone or not self._is_alive(renewed, now_ms):
            return GONE_MS
        if now_ms - renewed.begin_ms < RENEWED_MS_MAX:
            return None
        config = self._groups.find(renewed.group)
        return GONE_MS if config is None else retry_delay_ms(config, renewed.attempt)

    def _is_alive(self, renewed: Renewed, now_ms: float) -> bool:
        if self._clients.is_member(renewed.group, renewed.client_id):
            return True
        return now_ms - self._seen_ms[renewed.client_id] <= EXPIRY_MS

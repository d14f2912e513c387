"""The broker's registration at one name server.

A task keeps it up to date until the broker stops. A new connection begins with a registration of
all topics. Later the name server gets the changed topics, one request at a time. After 30 s without
a change the task asks for the name server's version of the topics. If it differs, the task sends
all topics. State: in memory; after a crash of either side a registration of all topics follows.
Source: BrokerController.registerBrokerAll, docs/design/cluster.md sections 3.1 and 3.4.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Protocol

import msgspec

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.clock import Clock, resolve, within
from rocketpy_broker.runtime.listeners import Listeners
from rocketpy_broker.services.registration.identity import BrokerIdentity
from rocketpy_broker.services.registration.topics import RegisteredTopics
from rocketpy_proto.model.codes import RequestCode, ResponseCode
from rocketpy_proto.model.configs import DataVersion, TopicConfig
from rocketpy_proto.record import Host
from rocketpy_proto.remoting import (
    EXCHANGES,
    Header,
    RemotingCommand,
    RemotingError,
    encode_body,
)
from rocketpy_proto.remoting.bodies.registration import body_crc32, encode_plain

logger = logging.getLogger(__name__)
INTERVAL_MS = 30_000
# The pause after a failure; each further failure doubles it.
RETRY_MS_MIN, RETRY_MS_MAX = 1_000, 30_000
STOP_MS_MAX = 1_000
# Topics of one request: about 2 MiB. A name server takes 16 MiB.
PART_TOPICS = 10_000


class NameServerRefusedError(BrokerError):
    """A request that the name server has refused."""


class NameServerConnection(Protocol):
    """A connection that `connect` opens again after its end; all methods raise BrokerError."""

    ended: Listeners[[]]

    @property
    def local_host(self) -> Host:
        """The address of this end."""

    @property
    def peer_host(self) -> Host:
        """The address of the name server."""

    async def connect(self) -> None:
        """Opens the connection."""

    async def ask(self, code: RequestCode, header: Header, body: bytes = b"") -> RemotingCommand:
        """Returns the answer to a request, with any code."""

    def close(self) -> None:
        """Ends the connection."""


class NameServerRegistration:
    """The registration at the name server with this `address` (host:port)."""

    def __init__(
        self,
        address: str,
        connection: NameServerConnection,
        topics: RegisteredTopics,
        identity: BrokerIdentity,
        clock: Clock,
    ) -> None:
        self._address = address
        self._connection = connection
        self._topics = topics
        self._identity = identity
        self._clock = clock
        self._wake = asyncio.Event()
        connection.ended.add(self._wake.set)
        topics.changed.add(self.changed)
        # Topics that have changed since the last request.
        self._changed: set[str] = set()
        # Changes since the start: all, and the ones that the name server has.
        self._change_count = self._sent_count = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        # The name server has had a request, or has accepted all topics, on this connection.
        self._is_begun = self._is_registered = False
        self._is_failing = False
        self._is_stopping = False
        self._ended = asyncio.Event()
        # False after callers have waited for too long, until the name server has all changes.
        self.is_prompt = True

    # --- Events of the broker ---

    def changed(self, names: Collection[str]) -> None:
        """Sends these topics to the name server soon."""
        self._change_count += 1
        if self._is_begun:
            self._changed.update(names)
            self._wake.set()

    def published(self) -> asyncio.Future[None] | None:
        """Returns a future that ends when the name server has all changes, or is gone.

        Returns None if there is nothing to wait for.
        """
        is_sent = self._sent_count == self._change_count
        if is_sent or not self._is_registered or not self.is_prompt:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._change_count, future))
        return future

    async def stop(self) -> None:
        """Ends the registration, if the name server answers in time."""
        self._is_stopping = True
        self._wake.set()
        if self._is_registered:
            try:
                await within(self._clock, STOP_MS_MAX, self._ended.wait())
            except TimeoutError:
                logger.warning(
                    "name server %s has not answered the broker's unregistration within %d ms",
                    *(self._address, STOP_MS_MAX),
                )
        self._connection.close()

    # --- The registration ---

    async def run(self) -> None:
        """Registers the broker, again after each failure, until `stop`."""
        retry_ms = RETRY_MS_MIN
        while not self._is_stopping:
            try:
                await self._connection.connect()
                await self._register_all()
                self._log_registered()
                retry_ms = RETRY_MS_MIN
                await self._keep_registered()
            except (BrokerError, RemotingError) as error:
                self._failed(error)
                if not self._is_stopping:
                    await self._sleep(retry_ms)
                retry_ms = min(2 * retry_ms, RETRY_MS_MAX)
        self._ended.set()

    async def _keep_registered(self) -> None:
        """Sends changes, and asks for the version when there are none; returns at the stop."""
        while True:
            if not self._changed:
                await self._sleep(INTERVAL_MS)
            if self._is_stopping:
                await self._unregister()
                return
            if self._changed:
                await self._register_changed()
            elif await self._is_outdated():
                await self._register_all()

    async def _sleep(self, delay_ms: float) -> None:
        """Waits for a change, the end of the connection, or the time's end."""
        timer = self._clock.call_later(delay_ms, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()
        self._wake.clear()

    async def _register_all(self) -> None:
        """Registers all topics, in several requests if they are many.

        A name server takes in topics where the version differs from the one before. So each
        request has a version of its own, and the last one has the table's.
        """
        self._is_begun, self._changed = True, set()
        count, version = self._change_count, self._topics.version
        present = self._topics.present()
        rest = iter(present.values())
        for left in reversed(range(max(-(-len(present) // PART_TOPICS), 1))):
            part = [*islice(rest, PART_TOPICS)]
            counter = version.counter - left
            await self._register(part, msgspec.structs.replace(version, counter=counter))
        self._is_registered = True
        self._sent(count)

    async def _register_changed(self) -> None:
        names, self._changed = self._changed, set()
        count, version = self._change_count, self._topics.version
        await self._register(self._topics.found(names), version)
        self._sent(count)

    async def _register(self, topics: Collection[TopicConfig], version: DataVersion) -> None:
        body = await asyncio.to_thread(self._encoded, topics, version)
        header = self._identity.registration(self._connection.local_host, body_crc32(body))
        await self._asked(RequestCode.REGISTER_BROKER, header, body)

    def _encoded(self, topics: Iterable[TopicConfig], version: DataVersion) -> bytes:
        return encode_plain(map(self._topics.registered, topics), version)

    async def _is_outdated(self) -> bool:
        """True if the name server has another version of the topics, or does not say."""
        version = encode_body(self._topics.version)
        header = self._identity.reference(self._connection.local_host)
        answer = await self._connection.ask(RequestCode.QUERY_DATA_VERSION, header, version)
        if answer.code != ResponseCode.SUCCESS:
            return True
        form = EXCHANGES[RequestCode.QUERY_DATA_VERSION].response
        is_changed: bool = form.decode(answer.ext_fields).is_changed
        return is_changed

    async def _unregister(self) -> None:
        header = self._identity.reference(self._connection.local_host)
        await self._asked(RequestCode.UNREGISTER_BROKER, header)

    async def _asked(self, code: RequestCode, header: Header, body: bytes = b"") -> None:
        """Makes a request that the name server must accept. Raises NameServerRefusedError."""
        answer = await self._connection.ask(code, header, body)
        if answer.code != ResponseCode.SUCCESS:
            remark = answer.remark or "it gives no reason"
            raise NameServerRefusedError(
                f"it refuses {code.name} with code {answer.code}: {remark!r:.300}"
            )

    # --- State ---

    def _sent(self, count: int) -> None:
        """Wakes the callers whose change is one of the first `count`."""
        self._sent_count = count
        self.is_prompt = self.is_prompt or count == self._change_count
        waiting, self._waiting = self._waiting, []
        for number, future in waiting:
            if number <= count:
                resolve(future)
            else:
                self._waiting.append((number, future))

    def _failed(self, error: Exception) -> None:
        self._connection.close()
        self._wake.clear()
        self._is_begun = self._is_registered = False
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            resolve(future)
        if not self._is_failing and not self._is_stopping:
            self._is_failing = True
            logger.warning(
                "the broker is not registered at name server %s: %.400s; it tries again",
                *(self._address, error),
            )

    def _log_registered(self) -> None:
        local, peer = self._connection.local_host, self._connection.peer_host
        own = self._identity.address(local)
        level = logging.WARNING if self._is_failing else logging.INFO
        self._is_failing = False
        logger.log(level, "the broker is registered at name server %s as %s", self._address, own)
        if self._identity.is_loopback(local) and not peer.address.is_loopback:
            logger.warning(
                "name server %s gives other machines the address %s, which they cannot reach; "
                "start the broker with another --host, or with --advertise-host",
                *(self._address, own),
            )

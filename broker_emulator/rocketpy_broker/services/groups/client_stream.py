"""Client streams: notices that the broker sends without a request.

State: the notices of each client, in memory only. A client opens another stream after the end
of its stream, and assumes that it has missed notices. Limits bound the notices of a slow client.
A change of members is kept once per group. Transaction checks are kept up to their limits; `offer`
returns False for a further one.
Source: docs/design/broker_behaviour.md sections 4.4 and 7.6.
"""

from __future__ import annotations

import asyncio
from collections import deque

from rocketpy_broker.config import ClientLimits
from rocketpy_broker.errors import ClientsFullError, NoticesEndedError
from rocketpy_broker.runtime.clock import resolve
from rocketpy_broker.runtime.shares import Shares
from rocketpy_broker.services import caller
from rocketpy_broker.services.groups.clients.members import check_client_id
from rocketpy_proto.record import decode_record
from rocketpy_proto.rocketpy.v1 import groups_pb2

# Approximate memory of a notice without its record.
OVERHEAD_BYTES = 500


class ClientStream:
    """Notices for one client, until the client or the broker ends the stream."""

    def __init__(self, client_id: str, address: str, limits: ClientLimits, waiting: Shares) -> None:
        self.client_id = client_id
        self._address = address
        self._limits = limits
        self._waiting = waiting
        self._changed: dict[str, None] = {}
        # Transaction checks, each with its memory in bytes.
        self._checks: deque[tuple[groups_pb2.CheckTransaction, int]] = deque()
        self._news: asyncio.Future[None] | None = None
        self._error: NoticesEndedError | None = None
        self._is_over = False
        self._caller = caller.current.get()

    def notify_changed(self, group: str) -> None:
        """Adds a notice that members of a group have changed; one waits per group at most."""
        self._changed[group] = None
        self._wake()

    def forget(self, group: str) -> None:
        """Drops the notice of a group that the client has left."""
        self._changed.pop(group, None)

    def offer(self, check: groups_pb2.CheckTransaction) -> bool:
        """Adds a transaction check; returns False at a limit or after the end of the stream.

        A check contains the message, and any client may use this client id. So it also returns
        False if the user of the stream is not permitted to send to the message's topic.
        """
        if self._caller is not None:
            topic = decode_record(check.record).record.topic
            if not self._caller.may_send(topic):
                return False
        size = OVERHEAD_BYTES + len(check.record)
        has_space = (
            not self._is_over
            and len(self._checks) < self._limits.notices_per_client_max
            and self._waiting.total + size <= self._limits.notice_bytes_max
            and self._waiting.has_space(self._address, size)
        )
        if has_space:
            self._checks.append((check, size))
            self._waiting.change(self._address, size)
            self._wake()
        return has_space

    async def next(self) -> groups_pb2.Notice | None:
        """Waits for the next notice; returns None at the end. Raises NoticesEndedError."""
        while not (self._is_over or self._changed or self._checks):
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        if self._error is not None:
            raise self._error
        return self.take()

    def take(self) -> groups_pb2.Notice | None:
        """Returns the next notice without waiting; None if there is none."""
        if self._is_over:
            return None
        if self._changed:
            group = next(iter(self._changed))
            del self._changed[group]
            changed = groups_pb2.MembersChanged(consumer_group=group)
            return groups_pb2.Notice(members_changed=changed)
        if not self._checks:
            return None
        check, size = self._checks.popleft()
        self._waiting.change(self._address, -size)
        return groups_pb2.Notice(check_transaction=check)

    @property
    def is_over(self) -> bool:
        """True after the end of the stream."""
        return self._is_over

    def end(self, error: NoticesEndedError | None = None) -> None:
        """Ends the stream and drops its waiting notices."""
        self._is_over, self._error = True, self._error or error
        self._waiting.change(self._address, -sum(size for _, size in self._checks))
        self._checks.clear()
        self._changed.clear()
        self._wake()

    def _wake(self) -> None:
        if self._news is not None:
            resolve(self._news)


class ClientStreams:
    """The client streams by client id."""

    def __init__(self, limits: ClientLimits) -> None:
        self._limits = limits
        self._streams: dict[str, ClientStream] = {}
        # The bytes of waiting notices, by the connection of their stream.
        self._waiting = Shares(limits.notice_bytes_per_connection_max)
        self._is_stopping = False

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def waiting_bytes(self) -> int:
        """The memory of all waiting notices."""
        return self._waiting.total

    def get(self, client_id: str) -> ClientStream | None:
        """Returns the client's stream, or None."""
        return self._streams.get(client_id)

    def open(self, client_id: str, address: str = "") -> ClientStream:
        """Returns a new stream for the client at that address; ends its former stream.

        Raises ParameterIllegalError, ClientsFullError.
        """
        check_client_id(client_id, self._limits)
        former = self._streams.pop(client_id, None)
        if former is not None:
            former.end(NoticesEndedError(f"client {client_id!r} has opened a newer stream"))
        if len(self._streams) >= self._limits.clients_max:
            raise ClientsFullError(
                "the number of clients with a stream of notices",
                self._limits.clients_max,
                "close streams that are not needed",
            )
        stream = ClientStream(client_id, address, self._limits, self._waiting)
        self._streams[client_id] = stream
        if self._is_stopping:
            stream.end()
        return stream

    def close(self, stream: ClientStream) -> bool:
        """Closes the stream; returns True if the client itself has ended its only stream.

        Returns False if the client has opened another stream, or the broker has ended this one.
        """
        if self._streams.get(stream.client_id) is not stream:
            return False
        del self._streams[stream.client_id]
        stream.end()
        return True

    def disconnect(self, client_id: str, reason: str) -> None:
        """Ends the client's stream, if it has one, with a reason."""
        stream = self._streams.pop(client_id, None)
        if stream is not None:
            stream.end(NoticesEndedError(reason))

    def stop(self) -> None:
        """Ends all streams when the broker stops."""
        self._is_stopping = True
        for stream in self._streams.values():
            stream.end()

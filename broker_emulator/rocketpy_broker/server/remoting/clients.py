"""Clients of remoting connections: their notices, and requests to them.

A heartbeat links its client id to its connection. A task for each client turns its notices into
one-way requests. Notices wait in the client stream, within its limits, while the peer does not
read. The end of a connection removes its clients from their groups. State: in memory only.
Source: Broker2Client, docs/design/remoting.md sections 2.8 and 6.1.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from rocketpy_broker.errors import BrokerError, ClientsFullError, NoticesEndedError
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.server.remoting.connection import ConnectionEndedError, RemotingConnection
from rocketpy_broker.services.context import BrokerContext
from rocketpy_broker.services.groups.client_stream import ClientStream
from rocketpy_broker.services.groups.clients.registry import ClientService
from rocketpy_proto.model import HALF_TOPIC
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.remoting import EXCHANGES, Header, RemotingCommand
from rocketpy_proto.remoting.headers.clients import ConsumerGroupRequest
from rocketpy_proto.remoting.headers.sends import CheckTransactionStateRequest
from rocketpy_proto.rocketpy.v1 import groups_pb2

# RocketMQ's clients share no connection; each client here has a task.
CLIENTS_PER_CONNECTION_MAX = 100
NOTICES_A_SLOT = 64
# The time for an answer of a client, as RocketMQ's brokers have it.
ANSWER_MS_MAX = 10_000


class ConsumerNotOnlineError(BrokerError):
    """A consumer group without clients, or a client without a connection."""

    code = ResponseCode.CONSUMER_NOT_ONLINE


@dataclass(frozen=True, slots=True)
class _Link:
    connection: RemotingConnection
    stream: ClientStream


class RemotingClients:
    """The clients of the remoting server's connections, by client id."""

    def __init__(self, clients: ClientService, context: BrokerContext) -> None:
        self._clients = clients
        self._tasks = context.tasks
        self._clock = context.call_clock
        self._broker_name = context.config.broker_name
        self._links: dict[str, _Link] = {}
        self._by_connection: dict[RemotingConnection, dict[str, _Link]] = {}

    def __len__(self) -> int:
        return len(self._links)

    def link(self, connection: RemotingConnection, client_id: str) -> None:
        """Links a client to its connection; a client of an older connection moves.

        Raises ParameterIllegalError, ClientsFullError, ConnectionEndedError.
        """
        link = self._links.get(client_id)
        if link is not None and link.connection is connection and not link.stream.is_over:
            return
        if not connection.is_open:
            raise ConnectionEndedError(connection.peer)
        linked = self._by_connection.setdefault(connection, {})
        if client_id not in linked and len(linked) >= CLIENTS_PER_CONNECTION_MAX:
            name = f"the number of clients of the connection {connection.peer}"
            raise ClientsFullError(name, CLIENTS_PER_CONNECTION_MAX, "use several connections")
        stream = self._clients.open_notices(client_id, str(connection.peer_host))
        link = self._links[client_id] = linked[client_id] = _Link(connection, stream)
        self._tasks.start(self._send_notices(link))

    def unlink_unregistered(self, client_id: str) -> None:
        """Ends the link of a client without a group."""
        link = self._links.get(client_id)
        if link is not None and not self._clients.groups_of(client_id):
            link.stream.end()

    def connection_lost(self, connection: RemotingConnection) -> None:
        """Ends the links of a connection that has ended."""
        for link in self._by_connection.pop(connection, {}).values():
            link.stream.end()

    def send_waiting(self, client_id: str) -> None:
        """Sends the notices that wait for a client now, while its connection reads them."""
        link = self._links.get(client_id)
        if link is None:
            return
        while link.connection.has_space and (notice := link.stream.take()) is not None:
            self._send(link.connection, notice)

    async def ask(self, client_id: str, command: RemotingCommand) -> RemotingCommand:
        """Sends a request to a client and returns the client's answer.

        Raises ConsumerNotOnlineError, ConnectionEndedError, UnreadRequestsError, NoAnswerError.
        """
        link = self._links.get(client_id)
        if link is None:
            raise ConsumerNotOnlineError(
                f"the client {client_id!r} is not online; start it, or check its heartbeats"
            )
        return await link.connection.ask(command, self._clock, ANSWER_MS_MAX)

    async def _send_notices(self, link: _Link) -> None:
        """Sends a client's notices until its stream ends; then the client leaves its groups.

        A client with a newer stream stays.
        """
        client_id, sent = link.stream.client_id, 0
        # The client has moved, or has expired.
        with contextlib.suppress(NoticesEndedError):
            while (notice := await link.stream.next()) is not None:
                self._send(link.connection, notice)
                sent += 1
                if not sent % NOTICES_A_SLOT or not link.connection.has_space:
                    # The connection writes frames in the next pass of the loop.
                    await take_slot("notices")
                await link.connection.drained()
        for links in (self._links, self._by_connection.get(link.connection, {})):
            if links.get(client_id) is link:
                del links[client_id]
        # Many clients may leave together with their connection.
        await take_slot("leave")
        self._clients.close_notices(link.stream)

    def _send(self, connection: RemotingConnection, notice: groups_pb2.Notice) -> None:
        if notice.HasField("members_changed"):
            group = notice.members_changed.consumer_group
            connection.notify(
                _command(Code.NOTIFY_CONSUMER_IDS_CHANGED, ConsumerGroupRequest(group))
            )
            return
        check = notice.check_transaction
        header = CheckTransactionStateRequest(
            check.queue_offset,
            check.commit_log_offset,
            check.transaction_id,
            check.transaction_id,
            check.offset_msg_id,
            HALF_TOPIC,
            self._broker_name,
        )
        connection.notify(_command(Code.CHECK_TRANSACTION_STATE, header, check.record))


def _command(code: Code, header: Header, body: bytes = b"") -> RemotingCommand:
    return RemotingCommand(code, 0, ext_fields=EXCHANGES[code].request.encode(header), body=body)

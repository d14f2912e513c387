"""Requests that the broker forwards to a client.

The broker returns the client's answer. A client of RocketMQ's gRPC SDKs gets such requests on its
telemetry stream.
Source: AdminBrokerProcessor#callConsumer, Broker2Client, docs/design/remoting.md section 6.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.errors import BrokerError, ParameterIllegalError
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.server.remoting.clients import ConsumerNotOnlineError, RemotingClients
from rocketpy_broker.server.remoting.server import Processor, Request
from rocketpy_broker.services.admin.store_admin_service import StoreAdminService
from rocketpy_broker.services.groups.clients.consumers import consumers_of
from rocketpy_broker.services.groups.clients.registry import ClientService
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.remoting import (
    EXCHANGES,
    QueueTable,
    RemotingCommand,
    RemotingFormatError,
    decode_body,
    encode_body,
)
from rocketpy_proto.remoting.bodies.clients import (
    CONSUME_TYPE,
    CONSUMER_START_TIME,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumerStatusBody,
)
from rocketpy_proto.remoting.headers.clients import (
    ConsumeMessageDirectlyRequest,
    ConsumerStatusRequest,
    GetConsumerRunningInfoRequest,
)
from rocketpy_proto.rocketpy.v1 import admin_pb2

# Clients that are asked in one scheduler slot: some ms. The members of a group are limited, too.
CLIENTS_A_SLOT = 100


class SdkClients(Protocol):
    """Clients of RocketMQ's SDKs, which have no connection of this protocol."""

    def opened_ms(self, client_id: str) -> int | None:
        """Returns the time since which a client is online; None for one that is not."""

    async def consume(self, client_id: str, record: bytes) -> str:
        """Returns the result of a client that consumes a message. Raises BrokerError."""

    async def stack_traces(self, client_id: str) -> str:
        """Returns the stack traces of a client's threads. Raises BrokerError."""


class ForwardProcessor:
    """The processor of requests to consumers: running info, a message, offsets."""

    def __init__(
        self,
        clients: ClientService,
        remote: RemotingClients,
        sdks: SdkClients,
        messages: StoreAdminService,
        config: BrokerConfig,
    ) -> None:
        self._clients = clients
        self._remote = remote
        self._sdks = sdks
        self._messages = messages
        self._broker_name = config.broker_name
        self._bytes_max = config.limits.clients.request_bytes_max

    def by_code(self) -> Mapping[int, Processor]:
        """Returns the processors."""
        return {
            Code.GET_CONSUMER_RUNNING_INFO: self._running_info,
            Code.CONSUME_MESSAGE_DIRECTLY: self._consume,
            Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self._status,
        }

    async def _running_info(self, request: Request) -> RemotingCommand:
        header: GetConsumerRunningInfoRequest = request.header
        group, client_id = header.consumer_group, header.client_id
        self._check_online(group, client_id)
        since_ms = self._sdks.opened_ms(client_id)
        if since_ms is None:
            return await self._forward(request, client_id, request.command.ext_fields)
        stacks = await self._sdks.stack_traces(client_id) if header.is_stack_wanted else None
        return request.answer(body=encode_body(self._info(group, since_ms, stacks)))

    def _info(self, group: str, since_ms: int, stacks: str | None) -> ConsumerRunningInfo:
        """Returns what the broker knows of an SDK's consumer, with its stack traces."""
        known = self._clients.consumer_group(group)
        properties = {CONSUMER_START_TIME: str(since_ms)}
        if known is not None:
            properties[CONSUME_TYPE] = known.latest.consume_type.name
        return ConsumerRunningInfo(properties, stacks)

    async def _consume(self, request: Request) -> RemotingCommand:
        """Sends a stored message to a client, which consumes it at once."""
        header: ConsumeMessageDirectlyRequest = request.header
        client_id = header.client_id or ""
        self._check_online(header.consumer_group, client_id)
        wanted = admin_pb2.ViewMessageRequest(offset_msg_id=header.msg_id or "")
        record = (await self._messages.view_message(wanted)).records
        if self._sdks.opened_ms(client_id) is not None:
            result = await self._sdks.consume(client_id, record)
            found = ConsumeMessageDirectlyResult(result, remark="from gRPC client")
            return request.answer(body=encode_body(found))
        fields = {**request.command.ext_fields, "brokerName": self._broker_name}
        return await self._forward(request, client_id, fields, record)

    def _check_online(self, group: str, client_id: str) -> None:
        """Raises ConsumerNotOnlineError for a client outside of the group."""
        if client_id not in self._clients_of(group):
            raise ConsumerNotOnlineError(
                f"The Consumer <{group}> <{client_id:.300}> not online; start it, or check its "
                "heartbeats"
            )

    async def _forward(
        self, request: Request, client_id: str, fields: Mapping[str, str], body: bytes = b""
    ) -> RemotingCommand:
        code = Code(request.command.code)
        answer = await self._remote.ask(
            client_id, RemotingCommand(code, 0, ext_fields=fields, body=body)
        )
        return request.command.answer(
            answer.code, remark=answer.remark, ext_fields=answer.ext_fields, body=answer.body
        )

    async def _status(self, request: Request) -> RemotingCommand:
        """Returns the next offsets of a group's clients, or of one; asks them all at once."""
        header: ConsumerStatusRequest = request.header
        ids = self._clients_of(header.group)
        if not ids:
            raise BrokerError(
                f"No Any Consumer online in the consumer group: [{header.group}]; start one, or "
                "check its heartbeats"
            )
        if header.client_addr and header.client_addr.strip():
            ids = [each for each in ids if each == header.client_addr]
        code = Code.GET_CONSUMER_STATUS_FROM_CLIENT
        asked = ConsumerStatusRequest(header.topic, header.group)
        command = RemotingCommand(code, 0, ext_fields=EXCHANGES[code].request.encode(asked))
        found: dict[str, QueueTable[int]] = {}
        size = 0

        async def ask(client_id: str) -> None:
            nonlocal size
            try:
                answer = await self._remote.ask(client_id, command)
            except BrokerError:
                # RocketMQ leaves out clients that do not answer.
                return
            size += len(answer.body)
            if size > self._bytes_max:
                accepted = f"{self._bytes_max} or fewer; ask for one client"
                raise ParameterIllegalError("bytes of the clients' offsets", size, accepted)
            offsets = _offsets(answer)
            if offsets is not None:
                found[client_id] = offsets

        async with TaskScope() as scope:
            for number, client_id in enumerate(ids, 1):
                scope.start(ask(client_id))
                if not number % CLIENTS_A_SLOT:
                    await take_slot("clients")
            await scope.join()
        return request.answer(body=encode_body(ConsumerStatusBody(by_client=found)))

    def _clients_of(self, group: str) -> list[str]:
        """Returns the client ids of a consumer group. Raises ParameterIllegalError."""
        return [each.client_id for each in self._clients.connections(consumers_of(group))]


def _offsets(answer: RemotingCommand) -> QueueTable[int] | None:
    """Returns the offsets in a client's answer; None if it has none."""
    if answer.code != ResponseCode.SUCCESS or not answer.body:
        return None
    try:
        return decode_body(ConsumerStatusBody, answer.body).offsets
    except RemotingFormatError:
        return None

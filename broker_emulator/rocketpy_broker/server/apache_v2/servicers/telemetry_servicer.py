"""The stream of settings and commands between a client and the broker.

A stream belongs to the client id of its headers from its start. Each settings command gets an
answer. The newest answer is sent again REPEAT_MS after the first one: the SDK for Node.js may miss
the first one while it starts. Checks of transactions and commands of tools go down the stream. The
broker ends a stream with gRPC's OK: an error would end a process of that SDK.
Source: ClientActivity#telemetry, docs/design/grpc_v2_semantics.md section 4.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from rocketpy_broker.errors import BrokerError, NoticesEndedError
from rocketpy_broker.runtime import scheduler
from rocketpy_broker.runtime.clock import Clock, resolve, sleep
from rocketpy_broker.runtime.tasks import TaskScope, run_until
from rocketpy_broker.server.apache_v2 import status
from rocketpy_broker.server.apache_v2.clients import ApacheClients
from rocketpy_broker.server.apache_v2.handlers import Decoded, Methods
from rocketpy_broker.server.apache_v2.receives.delivered_message import delivered
from rocketpy_broker.server.apache_v2.request_context import RequestContext
from rocketpy_broker.server.apache_v2.servicers.telemetry_commands import (
    CommandStream,
    TelemetryCommands,
    Write,
)
from rocketpy_broker.server.apache_v2.transaction_id import TransactionId
from rocketpy_broker.services.groups.client_stream import ClientStream
from rocketpy_proto.apache.rocketmq.v2.service_pb2 import (
    RecoverOrphanedTransactionCommand,
    TelemetryCommand,
)
from rocketpy_proto.record import decode_record
from rocketpy_proto.rocketpy.v1 import groups_pb2

if TYPE_CHECKING:
    from rocketpy_broker.server.apache_v2.request_context import Context

REPEAT_MS = 2_000


class TelemetryServicer:
    """The method Telemetry."""

    def __init__(self, clients: ApacheClients, commands: TelemetryCommands, clock: Clock) -> None:
        self._clients = clients
        self._commands = commands
        self._clock = clock

    def methods(self) -> Methods:
        """Returns the function by method name."""
        return {"Telemetry": self._telemetry}

    async def _telemetry(self, requests: AsyncIterator[Decoded], context: Context) -> None:
        scheduler.connection.set(context.peer())
        caller = RequestContext.of(context)
        writing = asyncio.Lock()

        async def write(command: TelemetryCommand) -> None:
            # gRPC takes one write of a call at a time.
            async with writing:
                await context.write(command)

        try:
            caller.check_client_id()
            stream = self._clients.open_stream(caller)
        except BrokerError as error:
            await write(TelemetryCommand(status=status.failure(error)))
            return
        try:
            await self._serve(requests, caller, stream, write)
        except BrokerError as error:
            await write(TelemetryCommand(status=status.failure(error)))
        finally:
            self._clients.close_stream(stream)

    async def _serve(
        self,
        requests: AsyncIterator[Decoded],
        caller: RequestContext,
        stream: ClientStream,
        write: Write,
    ) -> None:
        """Serves a stream until the client or the broker ends it. Raises BrokerError."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        async with TaskScope() as scope:
            scope.start(self._write_notices(caller, stream, write, over))
            commands = self._commands.open(caller, scope, write)
            try:
                # TimeoutError: the broker has ended the stream.
                with contextlib.suppress(TimeoutError):
                    await run_until(over, self._read(requests, caller, commands, write))
            finally:
                self._commands.close(commands)

    async def _read(
        self,
        requests: AsyncIterator[Decoded],
        caller: RequestContext,
        commands: CommandStream,
        write: Write,
    ) -> None:
        is_first, newest = True, TelemetryCommand()
        async for command in requests:
            if isinstance(command, BrokerError):
                raise command
            assert isinstance(command, TelemetryCommand)
            if not command.HasField("settings"):
                commands.take_result(command)
                continue
            settings = await self._clients.apply_settings(caller, command.settings)
            answer = TelemetryCommand(status=status.success(), settings=settings)
            newest.CopyFrom(answer)
            await write(answer)
            if is_first:
                is_first = False
                commands.scope.start(self._repeat(newest, write))

    async def _repeat(self, answer: TelemetryCommand, write: Write) -> None:
        await sleep(self._clock, REPEAT_MS)
        await write(answer)

    async def _write_notices(
        self, caller: RequestContext, stream: ClientStream, write: Write, over: asyncio.Future[None]
    ) -> None:
        """Writes the transaction checks for a client until its stream ends."""
        # NoticesEndedError: the client has a newer stream, or was silent for too long.
        with contextlib.suppress(NoticesEndedError):
            while (notice := await stream.next()) is not None:
                if notice.HasField("check_transaction"):
                    await write(_recovery(caller, notice.check_transaction))
        resolve(over)


def _recovery(caller: RequestContext, check: groups_pb2.CheckTransaction) -> TelemetryCommand:
    """Returns the command that asks a producer to commit or roll back a transaction."""
    record = decode_record(check.record).record
    transaction_id = TransactionId(
        check.transaction_id, check.commit_log_offset, check.queue_offset
    )
    command = RecoverOrphanedTransactionCommand(
        message=delivered(record, caller.resource(record.topic)),
        transaction_id=transaction_id.encode(),
    )
    return TelemetryCommand(status=status.success(), recover_orphaned_transaction_command=command)

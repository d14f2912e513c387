"""Commands of RocketMQ's tools to clients, by their telemetry streams.

A client has one command at a time. Its result has the nonce of the command.
Source: GrpcClientChannel, GrpcChannelManager, docs/design/grpc_v2_semantics.md section 4.7.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from rocketpy_broker.errors import BrokerError, PermissionDeniedError
from rocketpy_broker.runtime.clock import Clock, fail
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.server.apache_v2 import status
from rocketpy_broker.server.apache_v2.receives.message_mapper import MessageMapper
from rocketpy_broker.server.apache_v2.request_context import RequestContext
from rocketpy_broker.services import caller as services_caller
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.apache.rocketmq.v2 import service_pb2
from rocketpy_proto.apache.rocketmq.v2.service_pb2 import TelemetryCommand
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record import RecordBlock, decode_record

Write: TypeAlias = Callable[[TelemetryCommand], Awaitable[None]]
# The time for a result, as RocketMQ's proxy has it.
ANSWER_MS_MAX = 5_000
# The results of a listener, by the status of a verified message.
_RESULTS = {
    v2.OK: "CR_SUCCESS",
    v2.FAILED_TO_CONSUME_MESSAGE: "CR_LATER",
    v2.MESSAGE_CORRUPTED: "CR_RETURN_NULL",
}
# The SDK for Node.js answers with the command that it got.
_ANSWERS = ("verify_message_result", "thread_stack_trace", "verify_message_command")


class CommandError(BrokerError):
    """A command without a result."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code


@dataclass(slots=True)
class CommandStream:
    """A telemetry stream of a client, as long as its `scope` lives.

    `nonce` and `answer` are of the command that waits for its result.
    """

    caller: RequestContext
    user: services_caller.Caller | None
    opened_ms: int
    scope: TaskScope
    write: Write
    is_writing: bool = False
    nonce: str = ""
    answer: asyncio.Future[TelemetryCommand] | None = None

    async def send(self, command: TelemetryCommand) -> None:
        """Writes a command; waits while the client does not read."""
        self.is_writing = True
        await self.write(command)
        self.is_writing = False

    def take_result(self, result: TelemetryCommand) -> None:
        """Takes the result of the command; another one is ignored."""
        kind = result.WhichOneof("command")
        if kind not in _ANSWERS or self.answer is None or self.answer.done():
            return
        if getattr(result, kind).nonce == self.nonce:
            self.answer.set_result(result)


class TelemetryCommands:
    """The clients with a telemetry stream, and the commands to them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._mapper = MessageMapper(clock)
        self._streams: dict[str, CommandStream] = {}
        self._nonces = itertools.count(1)

    def open(self, caller: RequestContext, scope: TaskScope, write: Write) -> CommandStream:
        """Returns the new stream of a client."""
        user, now_ms = services_caller.current.get(), self._clock.now_ms()
        stream = CommandStream(caller, user, now_ms, scope, write)
        self._streams[caller.client_id] = stream
        return stream

    def close(self, stream: CommandStream) -> None:
        """Ends a stream and its command; the client may have a newer stream."""
        client_id = stream.caller.client_id
        if self._streams.get(client_id) is stream:
            del self._streams[client_id]
        if stream.answer is not None:
            fail(stream.answer, _not_online(client_id))

    def opened_ms(self, client_id: str) -> int | None:
        """Returns the time at which the client has opened its stream; None without one."""
        stream = self._streams.get(client_id)
        return None if stream is None else stream.opened_ms

    async def consume(self, client_id: str, record: bytes) -> str:
        """Makes a client consume a stored message; returns RocketMQ's name of the result.

        Raises CommandError, PermissionDeniedError.
        """
        stream = self._stream(client_id)
        topic = decode_record(record).record.topic
        if stream.user is not None and not stream.user.may_read(topic):
            raise PermissionDeniedError(
                f"the client's user may not read topic {topic!r}; give the user SUB"
            )
        resource = stream.caller.resource(topic)
        message = await self._mapper.message(RecordBlock.parse(record), 0, resource)
        command = service_pb2.VerifyMessageCommand(message=message)
        answer = await self._ask(stream, TelemetryCommand(verify_message_command=command))
        result = _RESULTS.get(answer.status.code)
        if result is None:
            raise _unsupported(answer.status)
        return result

    async def stack_traces(self, client_id: str) -> str:
        """Returns the stack traces of a client's threads. Raises CommandError."""
        command = service_pb2.PrintThreadStackTraceCommand()
        answer = await self._ask(
            self._stream(client_id), TelemetryCommand(print_thread_stack_trace_command=command)
        )
        if answer.HasField("status") and answer.status.code != v2.OK:
            raise _unsupported(answer.status)
        return answer.thread_stack_trace.thread_stack_trace

    def _stream(self, client_id: str) -> CommandStream:
        stream = self._streams.get(client_id)
        if stream is None:
            raise _not_online(client_id)
        return stream

    async def _ask(self, stream: CommandStream, command: TelemetryCommand) -> TelemetryCommand:
        client_id = stream.caller.client_id
        if self._streams.get(client_id) is not stream:
            # The stream has ended; the client's newer stream may be another user's.
            raise _not_online(client_id)
        if stream.is_writing or stream.answer is not None:
            raise CommandError(
                ResponseCode.SYSTEM_BUSY,
                f"the client {client_id!r} has not answered another command; ask again later",
            )
        late = CommandError(
            ResponseCode.CONSUME_MSG_TIMEOUT,
            f"the client {client_id!r} has not answered, limit {ANSWER_MS_MAX} ms; the SDKs for "
            "Python and Rust never answer",
        )
        stream.nonce = str(next(self._nonces))
        getattr(command, str(command.WhichOneof("command"))).nonce = stream.nonce
        command.status.CopyFrom(status.success())
        answer: asyncio.Future[TelemetryCommand] = asyncio.get_running_loop().create_future()
        stream.answer = answer
        timer = self._clock.call_later(ANSWER_MS_MAX, lambda: fail(answer, late))
        stream.scope.start(stream.send(command))
        try:
            return await answer
        finally:
            timer.cancel()
            stream.answer = None


def _not_online(client_id: str) -> CommandError:
    return CommandError(
        ResponseCode.CONSUMER_NOT_ONLINE,
        f"the client {client_id!r} not online; start it, or check its heartbeats",
    )


def _unsupported(reported: v2.Status) -> CommandError:
    code = reported.code
    known = v2.Code.Name(code) if code in v2.Code.values() else str(code)
    return CommandError(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        f"the client cannot run this command. It reports {known}: {reported.message:.300}",
    )

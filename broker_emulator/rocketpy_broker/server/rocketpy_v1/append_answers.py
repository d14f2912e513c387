"""Answers of one append stream, in the order of its blocks.

A block that needs a flush waits in a queue. The next blocks are stored meanwhile and share its
flush. If the queue is empty and a block needs no wait, the task that stored it answers it. To wake
another task would take a tenth of a send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rocketpy_broker.errors import BrokerError, UnconfirmedError
from rocketpy_broker.server.rocketpy_v1 import status
from rocketpy_broker.services.send.blocks import Stored
from rocketpy_broker.services.send.service import SendService
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import broker_pb2

# A listener for the code of an answer and the time at which its block came.
Answered = Callable[[int, float], None]


class AppendAnswers:
    """The answers of one append stream; `run` writes the delayed ones."""

    def __init__(
        self,
        sends: SendService,
        context: status.Context,
        waiting_max: int,
        on_answered: Answered,
    ) -> None:
        self._sends = sends
        self._context = context
        self._on_answered = on_answered
        self._waiting: asyncio.Queue[tuple[Stored | BrokerError, float]]
        self._waiting = asyncio.Queue(waiting_max)
        self._waiting_count = 0
        # Created once: only its numbers differ from answer to answer.
        self._success = broker_pb2.AppendResponse(status=status.success())

    async def add(self, outcome: Stored | BrokerError, begin_ms: float) -> None:
        """Answers, at once or after earlier blocks, a block that came at `begin_ms`."""
        if not self._waiting_count and self._is_final(outcome):
            self._on_answered(_code(outcome), begin_ms)
            await self._context.write(self._encoded(outcome))
        else:
            self._waiting_count += 1
            await self._waiting.put((outcome, begin_ms))

    def _is_final(self, outcome: Stored | BrokerError) -> bool:
        return isinstance(outcome, BrokerError) or self._sends.acknowledges(outcome)

    async def run(self) -> None:
        """Writes answers as flushes complete, until cancelled."""
        while True:
            outcome, begin_ms = await self._waiting.get()
            answer, code = await self._acknowledged(outcome)
            self._on_answered(code, begin_ms)
            await self._context.write(answer)
            self._waiting_count -= 1
            self._waiting.task_done()

    async def written(self) -> None:
        """Returns when all answers are written."""
        await self._waiting.join()

    async def _acknowledged(self, outcome: Stored | BrokerError) -> tuple[bytes, int]:
        """Waits until a block is acknowledged; returns its encoded answer and code."""
        if isinstance(outcome, Stored):
            try:
                await self._sends.acknowledged(outcome)
            except UnconfirmedError as error:
                # The block is stored, so the answer has its position.
                answer = broker_pb2.AppendResponse.FromString(self._encoded(outcome))
                answer.status.CopyFrom(status.failure(error))
                return answer.SerializeToString(), error.code
            except BrokerError as error:
                return self._encoded(error), error.code
        return self._encoded(outcome), _code(outcome)

    def _encoded(self, outcome: Stored | BrokerError) -> bytes:
        if isinstance(outcome, BrokerError):
            return broker_pb2.AppendResponse(status=status.failure(outcome)).SerializeToString()
        answer, result = self._success, outcome.result
        answer.queue_id = outcome.queue_id
        answer.queue_offset = result.queue_offset
        answer.physical_offset = result.physical_offset
        answer.record_count = result.record_count
        answer.store_timestamp_ms = result.store_timestamp_ms
        answer.is_delayed = outcome.is_delayed
        return answer.SerializeToString()


def _code(outcome: Stored | BrokerError) -> int:
    return outcome.code if isinstance(outcome, BrokerError) else ResponseCode.SUCCESS

"""Answers, joined to pieces: their records checked, cut to what was asked for, and without gaps.

What came together is checked together; only where something does not fit, answers are looked at one
by one. A gap is a loss, unless a filter may have made it. State: where the next piece begins.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import numpy as np

from pyspark_rocketpy.errors import ConnectionFailedError, DataLossError, loss_advice
from pyspark_rocketpy.offsets import QueueRange
from pyspark_rocketpy.transport.rebatching import RecordChunk
from pyspark_rocketpy.transport.remoting.cluster.records import (
    Records,
    StrangeRecordsError,
    records_of,
)
from pyspark_rocketpy.transport.remoting.pull.pipeline import NOTHING, Answer

logger = logging.getLogger(__name__)


class ResponseAssembler:
    """Joins the answers of one range; `offset` is the next one that was not delivered."""

    def __init__(self, part: QueueRange, *, is_filtered: bool, fails_on_loss: bool) -> None:
        self._range = part
        self._is_filtered = is_filtered
        self._fails_on_loss = fails_on_loss
        self.offset = part.begin

    def pieces(self, answers: Sequence[Answer]) -> Iterator[RecordChunk]:
        """Yields the pieces that answers bring, joined where they are just what was asked for."""
        joined: list[Answer] = []
        for answer in answers:
            if answer.loss is None:
                joined.append(answer)
                continue
            yield from self._joined(joined)
            joined = []
            self._pass_over(answer.end, answer.loss)
        yield from self._joined(joined)

    def _joined(self, answers: Sequence[Answer]) -> Iterator[RecordChunk]:
        if not answers:
            return
        begin, end = answers[0].begin, answers[-1].end
        bodies = [answer.records for answer in answers if len(answer.records)]
        if not bodies:
            yield self._piece(begin, end, None)
            return
        records = self._records(bodies)
        if records is not None and self._are_all(records, begin, end):
            yield self._piece(begin, end, records)
        elif records is None or len(answers) > 1:
            for answer in answers:
                yield from self._joined([answer])
        else:
            yield from self._cut(begin, end, records.within(begin, end))

    def _records(self, bodies: list[memoryview]) -> Records | None:
        """Returns the records of several answers; None where each is to be looked at alone.

        Raises ConnectionFailedError for what is none.
        """
        try:
            return records_of(bodies, self._range.queue_id)
        except StrangeRecordsError as error:
            if len(bodies) > 1:
                return None
            raise ConnectionFailedError(
                f"broker {self._range.broker_name} answers a pull of "
                f"{self._range.rest(self.offset)} with {error}; have its store checked",
                is_lasting=True,
            ) from error

    def _are_all(self, records: Records, begin: int, end: int) -> bool:
        """True if nothing is to be cut off, and nothing is missing."""
        if self._is_filtered:
            return records.is_in(begin, end)
        return records.is_just(begin, end)

    def _cut(self, begin: int, end: int, records: Records) -> Iterator[RecordChunk]:
        """What one answer has of these offsets; gaps are losses, but with a filter."""
        if self._is_filtered:
            yield self._piece(begin, end, records)
            return
        for first, last in records.runs():
            low, high = int(records.offsets[first]), int(records.offsets[last - 1]) + 1
            if low > self.offset:
                self._pass_over(low, f"the next that the broker has is {low}")
            yield self._piece(low, high, records.part(first, last))
        if self.offset < end:
            self._pass_over(end, f"the next that the broker has is {end}")

    def _piece(self, begin: int, end: int, records: Records | None) -> RecordChunk:
        self.offset = end
        if records is None:
            return RecordChunk(begin, end, NOTHING, np.empty(0, np.int32))
        return RecordChunk(begin, end, records.data, records.sizes)

    def _pass_over(self, end: int, reason: str) -> None:
        """Messages up to `end` are lost: fail, or leave them out. Raises DataLossError."""
        place = f"{self._range.rest(self.offset)} at broker {self._range.broker_name}"
        text = f"{place}: {end - self.offset} messages are gone, {reason}"
        if self._fails_on_loss:
            raise DataLossError(f"{text}; {loss_advice()}")
        logger.warning("%s; the query goes on without them", text)
        self.offset = end

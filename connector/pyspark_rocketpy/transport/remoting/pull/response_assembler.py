"""Assembly of answers into chunks: checked, cut, and without gaps.

Answers that came together are checked together. They are checked one by one only if the check of
all fails. A gap is a loss, unless a filter may have made it. State is the start of the next chunk.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence

import numpy as np

from pyspark_rocketpy.errors import ConnectionFailedError, DataLossError, loss_advice
from pyspark_rocketpy.offsets import QueueRange
from pyspark_rocketpy.transport.rebatching import RecordChunk
from pyspark_rocketpy.transport.remoting.cluster.records import Records, records_of
from pyspark_rocketpy.transport.remoting.pull.pipeline import NOTHING, Answer
from rocketpy_proto.counts import counted
from rocketpy_proto.record import RecordError

logger = logging.getLogger(__name__)


class ResponseAssembler:
    """The assembler of one range; `offset` is the next offset to deliver."""

    def __init__(self, part: QueueRange, *, is_filtered: bool, fails_on_loss: bool) -> None:
        self._range = part
        self._is_filtered = is_filtered
        self._fails_on_loss = fails_on_loss
        self.offset = part.begin

    def chunks(self, answers: Sequence[Answer]) -> Iterator[RecordChunk]:
        """Yields the chunks of answers, joined if they have exactly the requested offsets."""
        for loss, group in itertools.groupby(answers, lambda answer: answer.loss):
            adjacent = list(group)
            if loss is None:
                yield from self._joined(adjacent)
            else:
                self._pass_over(adjacent[-1].end, loss)

    def _joined(self, answers: Sequence[Answer]) -> Iterator[RecordChunk]:
        begin, end = answers[0].begin, answers[-1].end
        bodies = [answer.records for answer in answers if len(answer.records)]
        if not bodies:
            yield self._chunk(begin, end, None)
            return
        records = self._records(bodies)
        if records is not None and records.is_in(begin, end, is_gapless=not self._is_filtered):
            yield self._chunk(begin, end, records)
        elif records is None or len(answers) > 1:
            for answer in answers:
                yield from self._joined([answer])
        else:
            yield from self._cut(begin, end, records.within(begin, end))

    def _records(self, bodies: list[memoryview]) -> Records | None:
        """Returns the records of answers; None if each answer must be checked alone.

        Raises ConnectionFailedError for a single answer that holds no valid records.
        """
        try:
            return records_of(bodies, self._range.queue_id)
        except RecordError as error:
            if len(bodies) > 1:
                return None
            raise ConnectionFailedError(
                f"broker {self._range.broker_name} answers a pull of "
                f"{self._range.rest(self.offset)} with {error.reason}; check the broker's store",
                is_lasting=True,
            ) from error

    def _cut(self, begin: int, end: int, records: Records) -> Iterator[RecordChunk]:
        """Yields one answer's records of these offsets; a gap is a loss if there is no filter."""
        if self._is_filtered:
            yield self._chunk(begin, end, records)
            return
        for first, last in records.runs():
            low, high = int(records.offsets[first]), int(records.offsets[last - 1]) + 1
            if low > self.offset:
                self._pass_over(low, f"the broker's next message is at offset {low}")
            yield self._chunk(low, high, records.part(first, last))
        if self.offset < end:
            self._pass_over(end, f"the broker's next offset is {end}")

    def _chunk(self, begin: int, end: int, records: Records | None) -> RecordChunk:
        self.offset = end
        if records is None:
            return RecordChunk(begin, end, NOTHING, np.empty(0, np.int32))
        return RecordChunk(begin, end, records.data, records.sizes)

    def _pass_over(self, end: int, reason: str) -> None:
        """Skips lost messages up to `end`, with a warning.

        Raises DataLossError if the options fail on data loss.
        """
        place = f"{self._range.rest(self.offset)} at broker {self._range.broker_name}"
        lost = counted(end - self.offset, "message is", "messages are")
        text = f"{place}: {lost} gone, {reason}"
        if self._fails_on_loss:
            raise DataLossError(f"{text}; {loss_advice()}")
        logger.warning("%s; the query continues without them", text)
        self.offset = end

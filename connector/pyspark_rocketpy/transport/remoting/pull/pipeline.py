"""Pull pipelines: parts of a range, each with consecutive pulls.

    range       |--------------------------------------------------------|
    pipelines   |-- head --|----------|----------|----------|  not created yet
                     many of them have a pull under way, and are delivered in order

A pipeline without a filter is as long as one answer, so the offsets of the next pipelines are
predicted. After a short answer, a further pull completes its pipeline. Only the answer to a
filtered pull shows how far the broker has scanned. So a filtered pipeline is as long as the
broker's scan for one pull. Nothing is kept that a crash could lose.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from pyspark_rocketpy.transport.remoting.cluster.queue_requests import (
    PULLED_MESSAGES_MAX,
    PullResult,
)
from pyspark_rocketpy.transport.remoting.net.calls import Call

NOTHING = memoryview(b"")
# Brokers scan 800 messages for one filtered pull (16,000 bytes of the consume queue).
FILTERED_PIPELINE_COUNT = 25 * PULLED_MESSAGES_MAX


class Answer(msgspec.Struct, frozen=True):
    """The answer for the offsets [begin, end): records, or the reason why none will come."""

    begin: int
    end: int
    records: memoryview
    loss: str | None = None


class Asked(msgspec.Struct, frozen=True):
    """A pull under way: its start time, and the id of its broker."""

    call: Call[PullResult]
    since_ms: int
    broker_id: int


@dataclass(slots=True)
class PullPipeline:
    """Offsets [position, end) are still to come; `answers` wait for their delivery."""

    position: int
    end: int
    asked: Asked | None = None
    # True if its answer is an error or has no messages: it waits until the pipeline is the head.
    is_stuck: bool = False
    answers: list[Answer] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        """True if nothing more is to come."""
        return self.position >= self.end

    @property
    def is_answered(self) -> bool:
        """True if an answer is there that was not processed."""
        return self.asked is not None and not self.is_stuck and self.asked.call.is_answered

    def take(self, end: int, records: memoryview, loss: str | None = None) -> None:
        """Stores the content of an answer up to `end`."""
        self.answers.append(Answer(self.position, end, records, loss))
        self.position = end
        self.asked = None

    def delivered(self) -> list[Answer]:
        """Returns the stored answers, and removes them."""
        answers, self.answers = self.answers, []
        return answers

    def stop(self) -> None:
        """Discards the pull that is under way."""
        if self.asked is not None:
            self.asked.call.leave()
        self.asked = None
        self.is_stuck = False

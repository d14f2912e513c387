"""Lanes: parts of a range, each pulled from its begin to its end by one pull after the other.

    range   |--------------------------------------------------------|
    lanes   |-- head --|----------|----------|----------|  to be made
                 many of them have a pull on its way, and are delivered in their order

Without a filter a lane is as long as one answer: the offsets of the next ones are foreseen, and an
answer that comes short is completed by another pull of its lane. With a filter only the answer
tells how far the broker has looked, so lanes are as long as what a broker looks at for one pull.
Nothing is kept that a crash could lose.
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
# Brokers look at 800 messages for one filtered pull (16,000 bytes of the consume queue).
FILTERED_LANE_COUNT = 25 * PULLED_MESSAGES_MAX


class Answer(msgspec.Struct, frozen=True):
    """What came of the offsets [begin, end): records, or why there are none to come any more."""

    begin: int
    end: int
    records: memoryview
    loss: str | None = None


class Asked(msgspec.Struct, frozen=True):
    """A pull on its way: since when, and at which of the brokers of a name."""

    call: Call[PullResult]
    since_ms: int
    broker_id: int


@dataclass(slots=True)
class PullPipeline:
    """Offsets [position, end) are still to come; `answers` wait for their delivery."""

    position: int
    end: int
    asked: Asked | None = None
    # Its answer brings nothing, or an error: that is looked at when the lane is the first one.
    is_stuck: bool = False
    answers: list[Answer] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        """True if nothing more is to come."""
        return self.position >= self.end

    @property
    def is_answered(self) -> bool:
        """True if an answer is there that nobody has looked at."""
        return self.asked is not None and not self.is_stuck and self.asked.call.is_answered

    def take(self, end: int, records: memoryview, loss: str | None = None) -> None:
        """What an answer brought up to `end`."""
        self.answers.append(Answer(self.position, end, records, loss))
        self.position = end
        self.asked = None

    def delivered(self) -> list[Answer]:
        """Returns the answers, which are no more the lane's."""
        answers, self.answers = self.answers, []
        return answers

    def stop(self) -> None:
        """Whatever is on its way is not wanted any more."""
        if self.asked is not None:
            self.asked.call.leave()
        self.asked = None
        self.is_stuck = False

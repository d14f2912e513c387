"""The judgement of a pair's run, from the files of both logs and from what clients were answered.

A message may be lost for two reasons only. A fail-over ended the log before it, unless its
SYNC_MASTER had acknowledged it. Or the power of a broker with ASYNC_FLUSH was cut before its flush.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rocketpy_broker.store.values import QueueKey
from tests.faults.simulation.pair.clients import SEND_OK, UNCONFIRMED, Clients, Sent
from tests.faults.simulation.pair.log import Entry, RawLog
from tests.faults.simulation.producers import TOPIC


@dataclass(frozen=True)
class FailOver:
    """A promotion: its epoch, and the end of the slave's log then."""

    epoch: int
    end: int


@dataclass(frozen=True)
class Verdict:
    """The facts that the judge knows."""

    clients: Clients
    fail_overs: Sequence[FailOver]
    power_cuts: Sequence[int]
    log: RawLog

    def faults(self) -> Iterator[str]:
        """Yields a sentence for each broken promise."""
        yield from self.clients.faults
        entries = [each for each in self.log.entries() if each.topic == TOPIC]
        yield from self._losses(entries)
        yield from self._places(entries)
        yield from self._reads(entries)

    def _losses(self, entries: list[Entry]) -> Iterator[str]:
        counts = Counter(each.message_id for each in entries)
        for one, count in counts.items():
            if count > 1:
                yield f"{one} is in the log {count} times"
            if self.clients.sent[one].answer == "refused":
                yield f"{one} was refused, and is in the log"
        for sent in self.clients.sent.values():
            is_acknowledged = sent.answer in (SEND_OK, UNCONFIRMED)
            is_lost = is_acknowledged and not counts[sent.message_id]
            if is_lost and (reason := self._broken(sent)):
                yield f"{sent.message_id} is lost, {reason}: {sent}"

    def _broken(self, sent: Sent) -> str:
        """Returns the promise that a lost message breaks; empty if it breaks none."""
        if any(end < sent.end for end in self.power_cuts[sent.cuts :]):
            return ""
        if sent.is_sync and sent.answer == SEND_OK:
            return "and a slave had it"
        cut = any(each.epoch > sent.epoch and each.end < sent.end for each in self.fail_overs)
        return "" if cut else "and no fail-over was before it"

    def is_cut(self, end: int, epoch: int = 0) -> bool:
        """True if a fail-over or a power cut may have removed a message that ends at `end`."""
        ends = [each.end for each in self.fail_overs if each.epoch > epoch] + [*self.power_cuts]
        return any(each < end for each in ends)

    def _places(self, entries: list[Entry]) -> Iterator[str]:
        """Yields faults of the queues: gaps, another order, another place than acknowledged."""
        following: dict[QueueKey, int] = {}
        last: dict[QueueKey, str] = {}
        for each in entries:
            queue = QueueKey(each.topic, each.queue_id)
            expected = following.get(queue, each.queue_offset)
            if each.queue_offset != expected:
                yield f"{queue} goes on at {each.queue_offset}, not {expected}"
            following[queue] = each.queue_offset + 1
            sent = self.clients.sent[each.message_id]
            if sent.is_delayed:
                continue
            if each.message_id < last.get(queue, ""):
                yield f"{queue}: {each.message_id} is after {last[queue]}"
            last[queue] = each.message_id
            if sent.queue_offset >= 0 and sent.queue_offset != each.queue_offset:
                yield f"{each.message_id} is at {each.queue_offset}, not {sent.queue_offset}"

    def _reads(self, entries: list[Entry]) -> Iterator[str]:
        places = {(each.queue_id, each.queue_offset): each for each in entries}
        for read in self.clients.reads:
            found = places.get((read.queue.queue_id, read.queue_offset))
            is_same = found is not None and found.message_id == read.message_id
            if not is_same and not self.is_cut(read.end):
                yield f"{read} was read, and now there is {found}"

"""Deliveries of ordered pops, by topic, group and queue: `config/consumerOrderInfo.json`.

An ordered pop blocks its queue until its messages are acknowledged or visible again. A repeated pop
with the same attempt id is not blocked. The committed offset is the first unacknowledged message.
The file is saved at intervals, so a kill loses the last seconds of deliveries. Messages may then
come again before their time, in order. A kill loses no move of the committed offset, see `ordered`.
It may lose an acknowledgement of a message after an unacknowledged one. Entries of queues without a
pop for a day are dropped.
Source: ConsumerOrderInfoManager, docs/design/storage.md section 11.6.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.services.config_files.file import ConfigFile
from rocketpy_broker.services.config_files.json_fields import as_int, as_long, as_object
from rocketpy_broker.services.config_files.saver import SavePlan
from rocketpy_broker.services.offsets.table import SEPARATOR
from rocketpy_broker.store.values import QueueKey

TABLE = "table"
KEPT_MS = 86_400_000
QUEUES_MAX = 100_000
CLEANED_A_SAVE = 1_000


@dataclass(frozen=True, slots=True)
class OrderedDelivery:
    """Messages of the last ordered pop of a queue, by queue offset.

    `visible_ms` has changed times, `counts` the earlier deliveries of messages that had some, and
    `acked` the acknowledged offsets.
    """

    pop_ms: int
    invisible_ms: int
    offsets: list[int]
    attempt_id: str = ""
    visible_ms: Mapping[int, int] = field(default_factory=dict)
    counts: Mapping[int, int] = field(default_factory=dict)
    acked: AbstractSet[int] = frozenset()

    def blocked_until(self) -> int | None:
        """Returns the time at which all unacknowledged messages are visible; None without any."""
        usual_ms = self.pop_ms + self.invisible_ms
        left = (self.visible_ms.get(each, usual_ms) for each in self.offsets)
        times = (at for at, each in zip(left, self.offsets, strict=True) if each not in self.acked)
        return max(times, default=None)

    @property
    def next_offset(self) -> int:
        """The first unacknowledged offset, or the one after the last."""
        left = (each for each in self.offsets if each not in self.acked)
        return next(left, self.offsets[-1] + 1)

    def to_json(self) -> dict[str, object]:
        """Returns RocketMQ's OrderInfo."""
        first, *rest = self.offsets
        bits = sum(1 << i for i, each in enumerate(self.offsets) if each in self.acked)
        return {
            "popTime": self.pop_ms,
            "i": self.invisible_ms,
            "l": self.pop_ms,
            "cm": bits,
            "o": [first, *(each - first for each in rest)],
            "a": self.attempt_id,
            "ot": {str(each): at for each, at in self.visible_ms.items()},
            "oc": {str(each): count for each, count in self.counts.items()},
        }

    @classmethod
    def from_json(cls, content: object) -> OrderedDelivery | None:
        """Returns the delivery of an entry; None for one without messages. Raises ValueError."""
        entry = as_object(content)
        first, *rest = [as_long(each) for each in entry.get("o") or [-1]]
        if first < 0:
            return None
        offsets, bits = [first, *(first + each for each in rest)], as_long(entry.get("cm") or 0)
        return cls(
            *(as_long(entry.get("popTime")), as_long(entry.get("i") or 0), offsets),
            str(entry.get("a") or ""),
            {as_long(each): as_long(at) for each, at in as_object(entry.get("ot")).items()},
            {as_long(each): as_int(count) for each, count in as_object(entry.get("oc")).items()},
            {each for i, each in enumerate(offsets) if bits >> i & 1},
        )


class OrderTable:
    """The last ordered deliveries."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._file = ConfigFile(folder / "consumerOrderInfo.json", (TABLE,))
        self._clock = clock
        # In order of their last pop.
        self._deliveries: dict[tuple[str, QueueKey], OrderedDelivery] = {}
        self._change_count = self._saved_count = 0

    def load(self) -> None:
        """Reads the file if it exists. Raises ConfigFileError."""

        def decode(content: Mapping[str, Any]) -> dict[tuple[str, QueueKey], OrderedDelivery]:
            found = {}
            for key, queues in as_object(content.get(TABLE)).items():
                topic, _, group = key.partition(SEPARATOR)
                for queue_id, entry in as_object(queues).items():
                    delivery = OrderedDelivery.from_json(entry)
                    if delivery is not None:
                        found[group, QueueKey(topic, as_int(queue_id))] = delivery
            return found

        self._deliveries = self._file.load(decode) or {}

    def find(self, group: str, queue: QueueKey) -> OrderedDelivery | None:
        """Returns the last delivery of a queue, acknowledged or not; None if none is kept."""
        return self._deliveries.get((group, queue))

    def set(self, group: str, queue: QueueKey, delivery: OrderedDelivery) -> None:
        """Replaces the last delivery."""
        self._deliveries.pop((group, queue), None)
        self._deliveries[group, queue] = delivery
        if len(self._deliveries) > QUEUES_MAX:
            del self._deliveries[next(iter(self._deliveries))]
        self._change_count += 1

    def update(self, group: str, queue: QueueKey, delivery: OrderedDelivery) -> None:
        """Changes the last delivery."""
        self._deliveries[group, queue] = delivery
        self._change_count += 1

    def plan_save(self) -> SavePlan | None:
        """Returns a save of the present deliveries; None without changes."""
        for key in list(islice(self._deliveries, CLEANED_A_SAVE)):
            if self._deliveries[key].pop_ms < self._clock.now_ms() - KEPT_MS:
                del self._deliveries[key]
                self._change_count += 1
        count = self._change_count
        if count == self._saved_count:
            return None
        deliveries = self._deliveries.copy()

        def saved() -> None:
            self._saved_count = count

        return SavePlan(lambda: self._file.save({TABLE: _table_of(deliveries)}), saved)


def _table_of(deliveries: Mapping[tuple[str, QueueKey], OrderedDelivery]) -> dict[str, object]:
    """Returns the file's table; in the thread of the save."""
    table: dict[str, Any] = {}
    for (group, queue), delivery in deliveries.items():
        entry = table.setdefault(queue.topic + SEPARATOR + group, {})
        entry[str(queue.queue_id)] = delivery.to_json()
    return table

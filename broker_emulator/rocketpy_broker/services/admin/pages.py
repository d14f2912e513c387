"""Pages of sorted names, and names as answers show them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_proto.model.configs import SubscriptionGroupConfig, TopicConfig

PAGE_COUNT_MAX = 1_000
# Names to look at in one scheduler slot; takes 2 ms.
NAMES_A_SLOT = 5_000


@dataclass(frozen=True, slots=True)
class NamePage:
    """Sorted names; `has_more`: names follow the last one."""

    names: list[str]
    has_more: bool


def page_count(count_max: int) -> int:
    """Returns the size of a page; 0 selects the default. Raises ParameterIllegalError."""
    if count_max < 0:
        raise ParameterIllegalError("count_max", count_max, f"0 to {PAGE_COUNT_MAX}")
    return min(count_max or PAGE_COUNT_MAX, PAGE_COUNT_MAX)


def first_page(names: Iterable[str], count: int = PAGE_COUNT_MAX) -> NamePage:
    """Returns the first `count` names in order."""
    found = heapq.nsmallest(count + 1, names)
    return NamePage(found[:count], has_more=len(found) > count)


async def page_after(names: Iterable[str], after: str, count: int) -> NamePage:
    """Returns the first `count` names after `after`; takes scheduler slots in between.

    Names may repeat. The caller must not change their collection meanwhile.
    """
    left = iter(names)
    found: list[str] = []
    while some := list(islice(left, NAMES_A_SLOT)):
        fresh = {name for name in some if name > after}
        found = heapq.nsmallest(count + 1, fresh.union(found))
        await take_slot()
    return NamePage(found[:count], has_more=len(found) > count)


def shown(text: str) -> str:
    """Returns `text` with question marks for invalid Unicode, which foreign files may hold."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def shown_attributes(config: TopicConfig | SubscriptionGroupConfig) -> dict[str, str]:
    """Returns the attributes of a topic or a group as answers show them."""
    return {shown(name): shown(value) for name, value in config.attributes.items()}

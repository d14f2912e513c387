"""Texts of the reasons for which log segments stay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class SegmentWaitWords(NamedTuple):
    """The cause of a wait, and the words before the time at which it may end."""

    cause: str
    until: str = ""


# By WaitingSegments.reason.
WAITS: Mapping[str, SegmentWaitWords] = {
    "AGE": SegmentWaitWords(
        "their messages are younger than --file-reserved-hours", "the first expires at"
    ),
    "CLOCK": SegmentWaitWords(
        "after a start or a clock jump the broker checks its clock first",
        "it may remove them from",
    ),
    "HOUR": SegmentWaitWords(
        "the broker removes expired segments at the hours of --delete-when, or when the disk fills",
        "it removes them from",
    ),
    "NEEDED": SegmentWaitWords(
        "waiting messages, open transactions, batches or a backup need them"
    ),
    "BATCH": SegmentWaitWords("a pass removes at most ten; the next pass removes them"),
}

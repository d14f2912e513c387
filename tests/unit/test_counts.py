"""Counts in texts."""

from __future__ import annotations

from rocketpy_proto.counts import counted


def test_a_noun_has_the_number_of_its_count() -> None:
    assert [counted(count, "message") for count in (0, 1, 2)] == [
        "0 messages",
        "1 message",
        "2 messages",
    ]
    assert counted(1, "entry", "entries") == "1 entry"
    assert counted(3, "queue waits", "queues wait") == "3 queues wait"

"""`rocketpy clean`: the report of removed files, and of what keeps the rest."""

from __future__ import annotations

import json
import os
from pathlib import Path

from rocketpy_broker import LocalBroker
from tests.support.broker.shell import run

SEGMENT_BYTES = 1 << 20


def test_s10_clean_says_what_segments_wait_for_and_until_when(tmp_path: Path) -> None:
    broker = LocalBroker(tmp_path / "store", commit_log_segment_bytes=SEGMENT_BYTES)
    with broker:
        broker.create_topic("T")
        for _ in range(6):
            broker.send("T", bytes(400_000))
        young = run(broker, "clean")
        assert young.exit_code == 0
        removed, waiting = young.output.splitlines()
        assert removed == "removed 0 log segments; the log begins at 0"
        assert waiting.startswith("2 segments wait (AGE): their messages are younger than ")
        assert "; the first expires at 20" in waiting
    for path in (tmp_path / "store" / "commitlog").iterdir():
        os.utime(path, (1, 1))
    with broker:
        old = run(broker, "clean")
        assert old.exit_code == 0
        assert "2 segments wait (CLOCK): after a start or a clock jump the broker" in old.output
        told = json.loads(run(broker, "clean", "--json").output)
        [waiting] = told["waitingSegments"]
        assert (waiting["reason"], waiting["segments"]) == ("CLOCK", 2)
        assert waiting["until"].startswith("20")
        status = json.loads(run(broker, "broker", "status", "--json").output)
        assert [each["segments"] for each in status["waitingSegments"]] == [2]
        assert "waitingSegments : CLOCK 2 20" in run(broker, "broker", "status").output


def test_s10_clean_of_a_store_with_one_segment_says_that_it_stays() -> None:
    with LocalBroker() as broker:
        assert "the broker keeps the newest one" in run(broker, "clean").output

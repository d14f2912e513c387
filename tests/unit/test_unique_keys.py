"""Unique ids: never the same twice, at any time of the clock."""

from __future__ import annotations

import multiprocessing
import re
import warnings

import numpy as np

from rocketpy_proto.model.unique_keys import UniqueKeys, row_keys, unique_keys
from rocketpy_proto.record import Host

NOW_MS = 1_700_000_000_000


def test_ids_never_repeat_even_when_the_clock_steps_back() -> None:
    keys = UniqueKeys(Host.parse("10.0.0.1:0"))
    made: list[str] = []
    for now_ms, count in [(NOW_MS, 70_000), (NOW_MS, 10), (NOW_MS - 5_000, 10), (NOW_MS + 1, 10)]:
        made += keys.take(count, now_ms).to_pylist()
    assert len(set(made)) == len(made)
    assert all(len(key) == 32 and key.startswith("0A000001") for key in made)


def test_two_processes_make_different_ids() -> None:
    host = Host.parse("10.0.0.1:0")
    [first] = UniqueKeys(host).take(1, NOW_MS).to_pylist()
    [second] = UniqueKeys(host).take(1, NOW_MS).to_pylist()
    assert first != second


def test_a_forked_process_makes_other_ids() -> None:
    unique_keys().take(1, 0)
    receiver, sender = multiprocessing.get_context("fork").Pipe(duplex=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads.
        child = multiprocessing.get_context("fork").Process(
            target=lambda: sender.send(unique_keys().take(3, 0).to_pylist())
        )
        child.start()
    theirs, ours = receiver.recv(), unique_keys().take(3, 0).to_pylist()
    child.join()
    assert set(theirs).isdisjoint(ours)


def test_a_row_keeps_its_id_when_it_is_written_again() -> None:
    numbers = np.array([0, 1, 70_000, 1 << 40])
    made = row_keys(("query", 5, 3), numbers).to_pylist()
    assert made == row_keys(("query", 5, 3), numbers).to_pylist()
    assert made == [row_keys(("query", 5, 3), numbers[[i]]).to_pylist()[0] for i in range(4)]
    assert len(set(made)) == 4
    assert all(re.fullmatch("[0-9A-F]{32}", key) for key in made)


def test_rows_of_other_tasks_have_other_ids() -> None:
    tasks = [("query", 5, 3), ("query", 5, 4), ("query", 53, 3), ("query5", 3, 3), ("query", 3, 5)]
    made = [row_keys(task, np.arange(100)).to_pylist() for task in tasks]
    assert len({key for keys in made for key in keys}) == 500


def test_a_time_in_a_row_s_id_is_the_month_s_begin() -> None:
    """Checks the time in the id, from which on RocketMQ's tools search for a message."""
    [key] = row_keys(("query", 5, 3), np.array([10_000_000])).to_pylist()
    month_ms = int.from_bytes(bytes.fromhex(key)[10:14], "big")
    assert month_ms < 1_000

"""Unique ids: never the same twice, whatever the clock does."""

from __future__ import annotations

import multiprocessing
import warnings

from rocketpy_proto.record import Host
from rocketpy_proto.unique_keys import UniqueKeys, unique_keys

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

"""Recoveries that are killed at any step, repeatedly: they end as an undisturbed one.

A kill leaves the page cache, so it is simulated inside the process: the step raises `Killed`, and
no later step touches a file. A write may be killed half way.
"""

from __future__ import annotations

import linecache
import os
import random
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import pytest

from rocketpy_broker import store as store_package
from tests.faults.damage.sample import SEGMENT_BYTES, sample_of
from tests.faults.images import QUARANTINE, Image, altered, image_of, put_image, workshop
from tests.support.store.stores import SMALL_INDEX, store_in

RECOVERIES = "rocketpy/recoveries"
KILLS_QUICK = 100
KILLS_TORTURE = 1000
KILLS_IN_A_ROW = 10
# Calls of `os` that change a file; writes through the index's mapping come between lines.
CALLS = ("pwrite", "ftruncate", "posix_fallocate", "rename", "replace", "unlink", "mkdir", "rmdir")
NEVER_KILLED = {"__del__", "lock_folder"}
STORE_FOLDER = str(Path(store_package.__file__).parent)


class Killed(BaseException):
    """The end of the process."""


@contextmanager
def killed_at_call(number: int) -> Iterator[list[str]]:
    """Kills at the call of this number, counted from 0; yields the names of the calls made."""
    made: list[str] = []

    def call(name: str, real: Callable[..., object], *args: object, **options: object) -> object:
        made.append(name)
        if len(made) > number:
            if len(made) == number + 1 and name == "pwrite":
                descriptor, data, position = args
                assert isinstance(data, (bytes, memoryview))
                real(descriptor, data[: len(data) // 2], position)
            raise Killed
        return real(*args, **options)

    with ExitStack() as patches:
        for name in CALLS:
            replacement = partial(call, name, getattr(os, name))
            patches.enter_context(mock.patch.object(os, name, replacement))
        yield made


@contextmanager
def killed_at_line(number: int) -> Iterator[list[int]]:
    """Kills before the line of the store's code of this number; yields the count of lines run.

    Lines of `with` and `try` are left out. A `with` line runs once more at the end of its block; a
    `try` line does nothing; CPython guards neither. An error raised there leaves a lock held, which
    a killed process does not. The same holds for `lock_folder`. In `__del__`, Python would ignore
    it.
    """
    lines = [0]

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(STORE_FOLDER) or frame.f_code.co_name in NEVER_KILLED:
            return None
        line = linecache.getline(file, frame.f_lineno).lstrip()
        if event == "line" and not line.startswith(("with ", "try:")):
            lines[0] += 1
            if lines[0] > number:
                raise Killed
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lines
    finally:
        sys.settrace(before)


@cache
def crashed() -> Image:
    """Returns a store with much to repair.

    It has a torn tail, a damaged record, and derived files that are older or missing.
    """
    with workshop() as folder:
        sample = sample_of(folder, clean=False)
    with workshop() as folder:
        older = sample_of(folder, clean=True, whole=False).image
    end = sample.records[-1].end % SEGMENT_BYTES
    image = altered(sample.image, sample.records[-1].file, partial(write_at, end, b"torn" * 9))
    damaged = sample.of_kind("batch")
    image = altered(
        image, damaged.file, partial(write_at, damaged.begin % SEGMENT_BYTES + 90, b"?")
    )
    derived = ("index/", "consumequeue/TopicB")
    image = {name: content for name, content in image.items() if not name.startswith(derived)}
    image |= {name: content for name, content in older.items() if name.startswith(derived)}
    first = min(name for name in image if name.startswith("consumequeue/TopicA"))
    return altered(image, first, partial(write_at, 20, b"garbage"))


def write_at(position: int, data: bytes, content: bytearray) -> None:
    content[position : position + len(data)] = data


def recover(folder: Path) -> None:
    """Opens the store, and releases it as a kill does."""
    store = store_in(folder, segment_bytes=SEGMENT_BYTES, **SMALL_INDEX)
    try:
        store.open()
    finally:
        # A killed process has no locks, so nothing kills the release.
        sys.settrace(None)
        store._release()


def finished(folder: Path) -> Image:
    """Returns all files after one more start and a clean stop."""
    store = store_in(folder, segment_bytes=SEGMENT_BYTES, **SMALL_INDEX)
    store.open()
    store.close()
    return image_of(folder)


def undisturbed(folder: Path) -> Image:
    put_image(crashed(), folder)
    return finished(folder)


def check_same(found: Image, expected: Image) -> None:
    """Asserts equal files; a half cleared or half filled part may be in quarantine once more.

    A killed start may be a recovery, too: each draws an id, and finds the same end.
    """
    assert recovered_ends(found) == recovered_ends(expected)
    extra = found.keys() - expected.keys()
    again = re.compile(re.escape(QUARANTINE) + r".*\.(tail|damaged)-")
    assert all(again.match(name) for name in extra), extra
    same = expected.keys() - {RECOVERIES}
    assert {name: found[name] for name in same} == {name: expected[name] for name in same}


def recovered_ends(image: Image) -> set[bytes]:
    """Returns the ends of the log that starts after a crash have found."""
    text, _ = image[RECOVERIES]
    return {line.split()[1] for line in text.splitlines() if b" " in line}


def test_f10_killed_at_any_call_recovery_starts_over_and_ends_the_same() -> None:
    with workshop() as folder:
        expected = undisturbed(folder)
        put_image(crashed(), folder)
        with killed_at_call(sys.maxsize) as made:
            recover(folder)
        assert {"pwrite", "replace", "ftruncate"} <= set(made)
        for number in range(len(made)):
            put_image(crashed(), folder)
            with killed_at_call(number), pytest.raises(Killed):
                recover(folder)
            check_same(finished(folder), expected)


@pytest.mark.parametrize(
    "kills",
    [
        KILLS_QUICK,
        pytest.param(KILLS_TORTURE, marks=(pytest.mark.torture, pytest.mark.timeout(3600))),
    ],
)
def test_f10_killed_again_and_again_at_any_line_recovery_ends_the_same(kills: int) -> None:
    chance = random.Random(10)
    with workshop() as folder:
        expected = undisturbed(folder)
        put_image(crashed(), folder)
        with killed_at_line(sys.maxsize) as lines:
            recover(folder)
        for _ in range(kills // KILLS_IN_A_ROW):
            put_image(crashed(), folder)
            at = sorted(chance.randrange(lines[0]) for _ in range(KILLS_IN_A_ROW))
            for number in at:
                with killed_at_line(number):
                    try_to_recover(folder)
            check_same(finished(folder), expected)


def try_to_recover(folder: Path) -> None:
    """Recovers, or is killed; earlier repairs may make a run too short for the kill."""
    with suppress(Killed):
        recover(folder)

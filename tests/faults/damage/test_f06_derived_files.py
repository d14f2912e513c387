"""Derived files that are missing, cut, garbled, or older than the log.

The log is whole. A start and a stop of the store rebuild the same files as without any change.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from rocketpy_broker.errors import StoreDirectoryError
from tests.faults.damage.sample import SEGMENT_BYTES, Sample, check_keys, check_readable, sample_of
from tests.faults.images import Image, image_of, put_image, workshop
from tests.support.store.stores import opened

CHANCES_QUICK, CHANCES_TORTURE = 200, 5000
# The five kinds of files, by the start of their paths below the store.
KINDS = {
    "consume queues": ("consumequeue/",),
    "index": ("index/",),
    "checkpoint": ("checkpoint",),
    "mark and manifest": ("rocketpy/flushed", "rocketpy/manifest.json"),
    "abort marker": ("abort",),
}
CHECKSUMS = "rocketpy/checksums/"
REBUILT = ("commitlog/", "consumequeue/", "index/", "rocketpy/checksums/", "config/")

Alter = Callable[[random.Random, tuple[bytes, int]], tuple[bytes, int] | None]


def removed(_chance: random.Random, _content: tuple[bytes, int]) -> None:
    return None


def cut(chance: random.Random, content: tuple[bytes, int]) -> tuple[bytes, int]:
    data, length = content
    length = chance.randrange(length) if length else 0
    return data[:length], length


def garbled(chance: random.Random, content: tuple[bytes, int]) -> tuple[bytes, int]:
    data, length = content
    begin = chance.randrange(len(data))
    garbage = chance.randbytes(min(chance.choice([1, 4, 20, 200]), length - begin))
    return data[:begin] + garbage + data[begin + len(garbage) :], length


WAYS: dict[str, Alter] = {"removed": removed, "cut": cut, "garbled": garbled}
OLDER = "older"


@cache
def samples() -> dict[bool, Sample]:
    """Returns the sample, stopped cleanly (True) or killed."""
    with workshop() as folder:
        return {clean: sample_of(folder / str(clean), clean=clean) for clean in (True, False)}


@cache
def older_image() -> Image:
    """Returns the sample's derived files at the clean stop in its middle."""
    with workshop() as folder:
        return sample_of(folder, clean=True, whole=False).image


@cache
def reference() -> dict[str, bytes]:
    """Returns the files of an undisturbed store after a start and a stop."""
    with workshop() as folder:
        put_image(samples()[True].image, folder)
        return rebuilt(folder)


def rebuilt(folder: Path) -> dict[str, bytes]:
    """Returns logs and derived files after a start and a stop; index files by their number."""
    with opened(folder, segment_bytes=SEGMENT_BYTES) as store:
        for stopped in samples().values():
            check_readable(store, stopped)
            check_keys(store, stopped)
        store.close()
    image = image_of(folder)
    names = sorted(name for name in image if name.startswith("index/"))
    numbers = {name: f"index/{number}" for number, name in enumerate(names)}
    return {
        numbers.get(name, name): data.ljust(length, b"\0")
        for name, (data, length) in image.items()
        if name.startswith(REBUILT)
    }


def altered_image(image: Image, kinds: list[str], way: str, chance: random.Random) -> Image:
    """Returns the image with every file of these kinds altered; `older` takes the clean stop's."""
    altered: Image = {}
    for name, content in image.items():
        if not any(name.startswith(KINDS[kind]) for kind in kinds):
            altered[name] = content
            continue
        changed = older_image().get(name) if way == OLDER else WAYS[way](chance, content)
        if changed is not None:
            altered[name] = changed
    return altered


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("way", [*WAYS, OLDER])
def test_f06_all_combinations_of_derived_files_are_rebuilt_byte_for_byte(
    way: str, clean: bool
) -> None:
    chance = random.Random(6)
    with workshop() as folder:
        for kept in itertools.product([True, False], repeat=len(KINDS)):
            kinds = [kind for kind, keep in zip(KINDS, kept, strict=True) if not keep]
            image = altered_image(samples()[clean].image, kinds, way, chance)
            put_image(image, folder)
            doubtful = {"mark and manifest", "abort marker"} & set(kinds)
            may_refuse = way == "cut" and "consume queues" in kinds and bool(doubtful)
            check_rebuilt(folder, may_refuse=may_refuse)


def check_rebuilt(folder: Path, *, may_refuse: bool) -> None:
    """Asserts that the files are rebuilt; a queue file of unknown size may stop the start."""
    try:
        found = rebuilt(folder)
    except StoreDirectoryError as error:
        if not may_refuse or error.path.parts[-4] != "consumequeue":
            raise
        return
    assert found == reference()


@pytest.mark.parametrize(
    "chances",
    [
        CHANCES_QUICK,
        pytest.param(CHANCES_TORTURE, marks=(pytest.mark.torture, pytest.mark.timeout(3600))),
    ],
)
def test_f06_any_files_altered_in_any_ways_are_rebuilt_byte_for_byte(chances: int) -> None:
    with workshop() as folder:
        for seed in range(chances):
            chance = random.Random(seed)
            image = samples()[seed % 2 == 0].image
            ways: dict[str, str] = {}
            for name in sorted(image):
                if name.startswith(tuple(itertools.chain(*KINDS.values()))):
                    way = chance.choice(["none", "none", *WAYS, OLDER])
                    image = one_altered(image, name, way, chance)
                    ways[name] = way
            put_image(image, folder)
            check_rebuilt(folder, may_refuse=is_size_unknown(ways))


def is_size_unknown(ways: dict[str, str]) -> bool:
    """True if a consume queue's file is cut and its size may be recorded in no other file."""
    is_cut = any(name.startswith("consumequeue/") for name, way in ways.items() if way == "cut")
    sources = (*KINDS["mark and manifest"], *KINDS["abort marker"])
    return is_cut and any(ways.get(name) in WAYS for name in sources)


def one_altered(image: Image, name: str, way: str, chance: random.Random) -> Image:
    """Returns the image with one file altered."""
    if way == "none":
        return image
    rest = {path: content for path, content in image.items() if path != name}
    changed = older_image().get(name) if way == OLDER else WAYS[way](chance, image[name])
    return rest if changed is None else {**rest, name: changed}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_f06_without_right_checksums_every_message_is_served(way: str, clean: bool) -> None:
    image = dict(samples()[clean].image)
    with workshop() as folder:
        for seed in range(20):
            altered = image
            for name in [name for name in image if name.startswith(CHECKSUMS)]:
                altered = one_altered(altered, name, way, random.Random(seed))
            put_image(altered, folder)
            rebuilt(folder)


@pytest.mark.parametrize("way", [*WAYS, OLDER])
def test_f06_lost_checksums_are_made_anew(way: str) -> None:
    image = samples()[True].image
    with workshop() as folder:
        for name in [name for name in image if name.startswith(CHECKSUMS)]:
            put_image(one_altered(image, name, way, random.Random(6)), folder)
            assert rebuilt(folder) == reference()

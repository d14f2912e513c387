"""Settings of the whole process that serves a broker. Holds no state on disk."""

from __future__ import annotations

import ctypes
import gc
import resource
import sys

# From malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 32 << 20
# A thread that wants to go on, such as the event loop's, waits so long for one that computes.
SWITCH_INTERVAL_SECONDS = 0.0005
# How many new objects bring a collection about, how many of those one of what they left, and so on.
# By THRESHOLDS a full one comes for each 25,000 objects that stay, and visits these: some 10 ms.
THRESHOLDS, START_THRESHOLDS = (700, 5, 5), (50_000, 10, 1_000_000)
# After so many full collections, it is looked at how many objects are passed over by them.
LOOK_EACH, PASSED_OVER_MORE = 1_000, 1_000_000
FULL = 2
# How the first line of output begins, once clients may come.
READY_PREFIX = "rocketpy broker ready on "


def raise_descriptor_limit() -> None:
    """Uses all descriptors that the system grants: each file of the store takes two."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def keep_freed_memory() -> None:
    """Let malloc keep the buffers of blocks and pulls for the next ones, up to KEPT_BYTES.

    By default glibc gives buffers of this size back to the system at once, and fetching their
    pages again costs several times what filling them does. Other C libraries are left alone.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


def switch_threads_often() -> None:
    """Let the event loop go on soon while other threads compute, and they while it does.

    By default each handover may take 5 ms, and an answer to a call takes several of them.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)


def collect_new_objects_only() -> None:
    """Let garbage collections of the start pass over what is not new.

    What a start makes is much, and stays: a full collection, as the default has one for every
    quarter that comes, visits all of it for nothing.
    """
    gc.set_threshold(*START_THRESHOLDS)


def tune() -> None:
    """All of the above, as a broker wants it."""
    raise_descriptor_limit()
    keep_freed_memory()
    switch_threads_often()
    collect_new_objects_only()


def leave_start_uncollected() -> None:
    """The start is over: let later garbage collections pass over all objects that are there now.

    A full one holds every thread up while it visits every object, and those of modules and of the
    loaded store are many and stay.
    """
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.callbacks.append(GcTuner(gc.get_freeze_count()))


class GcTuner:
    """Lets garbage collections also pass over what has survived a full one.

    A held call is a hundred objects, a registered client ten: ten thousand calls of one client made
    each full collection take half a second. What they hold is freed when it is given up, in its
    turn; only what is then held by a cycle stays. Once that may be much all of it is visited again.
    """

    def __init__(self, passed_over: int) -> None:
        # How many objects are passed over, when that was looked at last.
        self._passed_over = passed_over
        self._collections = 0
        self._is_thorough = False

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """A collection begins, or is over."""
        if phase != "stop" or info["generation"] < FULL:
            return
        gc.freeze()
        self._collections += 1
        if self._is_thorough:
            self._is_thorough, self._passed_over = False, gc.get_freeze_count()
        elif self._collections % LOOK_EACH == 0 and self._are_many():
            # The next one visits them.
            self._is_thorough = True
            gc.unfreeze()

    def _are_many(self) -> bool:
        return gc.get_freeze_count() > 2 * self._passed_over + PASSED_OVER_MORE

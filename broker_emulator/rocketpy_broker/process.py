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
THRESHOLDS, START_THRESHOLDS = gc.get_threshold(), (50_000, 10, 1_000_000)
# How the first line of output begins, once clients may come.
READY_PREFIX = "rocketpy broker ready on "


def raise_descriptor_limit() -> None:
    """Use all descriptors that the system grants: each file of the store takes two."""
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

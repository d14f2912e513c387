"""Process-wide settings of a broker: descriptors, malloc, thread switches, collections, gRPC."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import sys

# From malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 32 << 20
# The wait of a ready thread, such as the event loop's, for a thread that computes.
SWITCH_INTERVAL_SECONDS = 0.0005
# Thresholds of gc.set_threshold. With THRESHOLDS a full collection runs for each 25,000 objects
# that stay; it visits them in about 10 ms.
THRESHOLDS, START_THRESHOLDS = (700, 5, 5), (50_000, 10, 1_000_000)
# Full collections between two checks of the frozen objects, and their growth that matters.
LOOK_EACH, PASSED_OVER_MORE = 1_000, 1_000_000
FULL = 2
# The prefix of the first output line, printed when the broker accepts clients.
READY_PREFIX = "rocketpy broker ready on "


def raise_descriptor_limit() -> None:
    """Raises the descriptor limit to the hard limit: each file of the store takes two."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def keep_freed_memory() -> None:
    """Makes malloc keep freed buffers of blocks and pulls, up to KEPT_BYTES.

    By default glibc returns buffers of this size to the system at once. To fetch their pages
    again costs several times as much as to fill them. Other C libraries keep their defaults.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


def switch_threads_often() -> None:
    """Shortens the switch interval between the event loop and threads that compute.

    By default each switch may take 5 ms, and the answer to a call takes several switches.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)


def collect_new_objects_only() -> None:
    """Restricts garbage collections during the start to new objects.

    A start creates many objects that stay. By default a full collection runs for each growth of
    their number by a quarter. It visits all of them in vain.
    """
    gc.set_threshold(*START_THRESHOLDS)


def quiet_grpc() -> None:
    """Leaves out gRPC's own notes on standard error; its errors stay.

    It would write one for each failed TLS handshake of any client. It reads the variable when it
    opens its first channel or server.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")


def tune() -> None:
    """Applies all settings of a starting broker."""
    quiet_grpc()
    raise_descriptor_limit()
    keep_freed_memory()
    switch_threads_often()
    collect_new_objects_only()


def leave_start_uncollected() -> None:
    """Excludes all present objects from later garbage collections; called after the start.

    A full collection stops every thread while it visits every object. The objects of modules and
    of the loaded store are many and stay.
    """
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.callbacks.append(GcTuner(gc.get_freeze_count()))


class GcTuner:
    """A garbage collection callback that freezes the survivors of each full collection.

    A held call is a hundred objects, a registered client ten. Ten thousand calls of one client
    made each full collection take half a second. Reference counts still free frozen objects; only
    cycles stay. When the frozen objects may be many, one full collection visits all of them again.
    """

    def __init__(self, passed_over: int) -> None:
        # The number of frozen objects after the last thorough collection.
        self._passed_over = passed_over
        self._collections = 0
        self._is_thorough = False

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """Freezes the survivors when a full collection stops."""
        if phase != "stop" or info["generation"] < FULL:
            return
        gc.freeze()
        self._collections += 1
        if self._is_thorough:
            self._is_thorough, self._passed_over = False, gc.get_freeze_count()
        elif self._collections % LOOK_EACH == 0 and self._are_many():
            # The next full collection visits them.
            self._is_thorough = True
            gc.unfreeze()

    def _are_many(self) -> bool:
        return gc.get_freeze_count() > 2 * self._passed_over + PASSED_OVER_MORE

"""Process-wide settings of a broker: descriptors, malloc, thread switches, collections, gRPC."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

# From malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 32 << 20
# The wait of a ready thread, such as the event loop's, for a thread that computes.
SWITCH_INTERVAL_SECONDS = 0.0005
# Thresholds of gc.set_threshold. With THRESHOLDS a full collection runs for each 25,000 objects
# that stay; it visits them in about 10 ms.
THRESHOLDS, START_THRESHOLDS = (700, 5, 5), (50_000, 10, 1_000_000)
# Survivors of a longer full collection are frozen.
FREEZE_SECONDS = 0.005
# The growth of memory after which a full collection visits frozen objects: bytes, and a share.
GROWTH_BYTES, GROWTH_SHARE = 128 << 20, 0.5
FULL = 2
# The prefix of the first output line, printed when the broker accepts clients.
READY_PREFIX = "rocketpy broker ready on "


def raise_descriptor_limit() -> None:
    """Raises the descriptor limit to the hard limit: a file of the store takes two descriptors."""
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
    their number by a quarter. It visits all of them and frees none.
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


def freeze_start_objects() -> None:
    """Excludes all present objects from later garbage collections; called after the start.

    A full collection stops every thread while it visits every object. The objects of modules and
    of the loaded store are many and stay.
    """
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.callbacks.append(GcTuner(anonymous_bytes))


def anonymous_bytes() -> int:
    """Returns the process's memory without files; 0 if the system does not report it."""
    try:
        statm = Path("/proc/self/statm").read_text(encoding="ascii")
    except OSError:
        return 0
    _, resident, shared, *_ = map(int, statm.split())
    return (resident - shared) * resource.getpagesize()


class GcTuner:
    """A garbage collection callback that freezes the survivors of long full collections.

    A held call is a hundred objects, a registered client ten. Ten thousand calls of one client made
    each full collection take half a second. Reference counts still free frozen objects; only cycles
    stay. So survivors are not frozen while they are few. When the memory has grown by GROWTH_BYTES
    and GROWTH_SHARE, one full collection visits the frozen objects again. It may stop the broker
    for half a second; without it, cycles would stay for good.
    """

    def __init__(self, memory: Callable[[], int]) -> None:
        self._memory = memory
        # After the last collection that visited all objects.
        self._least_bytes = memory()
        self._begin_seconds = 0.0
        self._is_thorough = False

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """Freezes survivors when a full collection stops."""
        if info["generation"] < FULL:
            return
        if phase == "start":
            self._begin_seconds = time.thread_time()
            return
        if self._is_thorough or time.thread_time() - self._begin_seconds > FREEZE_SECONDS:
            gc.freeze()
        if self._is_thorough:
            self._is_thorough, self._least_bytes = False, self._memory()
        elif self._has_grown():
            # The next full collection visits them.
            self._is_thorough = True
            gc.unfreeze()

    def _has_grown(self) -> bool:
        grown = self._memory() - self._least_bytes
        return grown > max(GROWTH_BYTES, GROWTH_SHARE * self._least_bytes)

"""An ext4 file system on a loop device whose power can be cut.

The cut is the file system's own shutdown call: from then on nothing reaches the device, neither
data nor journal. The next mount finds what a power cut leaves on a device without a volatile cache,
and with an ordered journal. Needs root and loop devices.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.time_limits import WAIT_SECONDS_MAX

TOOLS = ("mkfs.ext4", "losetup", "mount", "umount")
IMAGE_BYTES = 48 << 20
# _IOR('X', 125, __u32) of linux/ext4.h, and its flag: do not even write the journal out.
EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
LOG_FLUSH = 1
CALL_SECONDS_MAX = WAIT_SECONDS_MAX


class LoopDiskError(Exception):
    """An error of a machine that has no loop device for the tests."""


def _call(*command: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=CALL_SECONDS_MAX, check=False
    )
    if done.returncode:
        raise LoopDiskError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()


class LoopDisk:
    """A mounted disk below `folder`; `close` removes all of it, in any state."""

    def __init__(self, folder: Path) -> None:
        self.mount_point = folder / "disk"
        self._image = folder / "disk.img"
        self._device: str | None = None
        self._mounted = False

    def open(self) -> None:
        """Creates and mounts the disk. Raises LoopDiskError with the reason."""
        missing = [tool for tool in TOOLS if shutil.which(tool) is None]
        if missing or os.geteuid() != 0:
            raise LoopDiskError(f"missing: {', '.join(missing)}" if missing else "not root")
        self.mount_point.mkdir()
        with self._image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        _call("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1", str(self._image))
        self._device = _call("losetup", "--find", "--show", str(self._image))
        self._mount()

    def _mount(self) -> None:
        assert self._device is not None
        _call("mount", "-t", "ext4", self._device, str(self.mount_point))
        self._mounted = True

    def _unmount(self) -> None:
        _call("umount", str(self.mount_point))
        self._mounted = False

    def cut(self, flag: int = NO_LOG_FLUSH) -> None:
        """Cuts the power: every later write fails, and data that was not on the device is lost."""
        descriptor = os.open(self.mount_point, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, struct.pack("I", flag))
        except OSError as error:
            raise LoopDiskError(f"no shutdown call: {error.strerror}") from error
        finally:
            os.close(descriptor)

    def power_on(self) -> None:
        """Mounts again after a cut; the journal is replayed. No process may have files open."""
        self._unmount()
        self._mount()

    def close(self) -> None:
        """Unmounts, and frees the loop device."""
        try:
            if self._mounted:
                self._unmount()
        finally:
            if self._device is not None:
                _call("losetup", "--detach", self._device)
            self._image.unlink(missing_ok=True)


@contextmanager
def opened(folder: Path) -> Iterator[LoopDisk]:
    """Yields an open disk; skips the test where there is none."""
    disk = LoopDisk(folder)
    try:
        try:
            disk.open()
        except LoopDiskError as error:
            pytest.skip(f"no disk whose power can be cut: {error}")
        yield disk
    finally:
        disk.close()

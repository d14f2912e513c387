"""Setting a broken file aside, so that nobody overwrites what may still be mended by hand.

A crash leaves the file under its own name, under the new one, or under both; never under none.
Source: RocketMQ deletes such a file, spec/storage.md section 1; we do not.
"""

from __future__ import annotations

import os
from pathlib import Path

from rocketpy_broker.store import files


def set_aside(path: Path) -> Path:
    """Give `path` the name `<name>.broken`, in place of an older one. Raises OSError."""
    target = path.with_name(path.name + ".broken")
    target.unlink(missing_ok=True)
    os.link(path, target)
    files.sync_folder(path.parent)
    files.remove_file(path)
    return target

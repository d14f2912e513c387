"""Installed packages with hooks, in the place where Python looks for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rocketpy_broker.hooks import ENTRY_POINT_GROUP
from rocketpy_broker.services.hooks import chain


@contextmanager
def installed(folder: Path, **hooks: str) -> Iterator[None]:
    """Installs a package with these hooks, `name="module:Class"`, until the end of the block."""
    package = folder / "hooks-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: hooks\nVersion: 1.0\n")
    lines = [f"[{ENTRY_POINT_GROUP}]", *(f"{name} = {place}" for name, place in hooks.items())]
    (package / "entry_points.txt").write_text("\n".join([*lines, ""]))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        chain.entry_points.cache_clear()
        try:
            yield
        finally:
            chain.entry_points.cache_clear()

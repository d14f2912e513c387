"""A Spark home whose Python workers start quickly.

Spark puts `python/lib/pyspark.zip` of its home before all other paths of its Python workers. An
archive has no compiled modules, so each worker would compile PySpark again. This home has no
archive, so workers import the installed PySpark.
"""

from __future__ import annotations

import contextlib
import sys
from importlib.util import find_spec
from pathlib import Path

FOLDERS = ("bin", "jars", "sbin")


def spark_home() -> Path:
    """Returns the home, which has links to the installed Spark; creates it at the first call."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    home = Path(sys.prefix) / "spark-home"
    home.mkdir(exist_ok=True)
    for name in FOLDERS:
        with contextlib.suppress(FileExistsError):
            (home / name).symlink_to(Path(spec.origin).parent / name)
    return home

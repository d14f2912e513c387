"""Options of the JVMs that tests start, which run for seconds.

The second compiler and its threads never pay off then. Loading Spark's classes is half of the work,
so `make test` and `make torture` archive them once; JVMs run without the archive if it is missing
or of another Spark.
"""

from __future__ import annotations

import sys
from pathlib import Path

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"


def options() -> str:
    """Returns the value of JDK_JAVA_OPTIONS."""
    if not _ARCHIVE.exists():
        return QUICK
    return f"{QUICK} -XX:SharedArchiveFile={_ARCHIVE} -Xlog:cds=off -Xlog:cds+dynamic=off"

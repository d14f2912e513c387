"""Options of the JVMs that tests start, which live for seconds.

The second compiler and its threads never pay then. Loading Spark's classes is half of the work, so
`make test` and `make torture` have them archived once; where the archive is missing or of another
Spark, JVMs do without it.
"""

from __future__ import annotations

import sys
from pathlib import Path

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"


def options() -> str:
    """What JDK_JAVA_OPTIONS is to be."""
    if not _ARCHIVE.exists():
        return QUICK
    return f"{QUICK} -XX:SharedArchiveFile={_ARCHIVE} -Xlog:cds=off -Xlog:cds+dynamic=off"

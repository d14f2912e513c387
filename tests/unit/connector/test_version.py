"""A PySpark that is too old: it is refused before any other of its modules is imported."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pyspark
import pytest
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

from pyspark_rocketpy import DefaultSource
from pyspark_rocketpy.errors import VersionError
from pyspark_rocketpy.source.refused import RefusedStreamReader

SCHEMA = StructType().add("body", "binary")
USES: dict[str, Callable[[DefaultSource], object]] = {
    "schema": lambda source: source.schema(),
    "reader": lambda source: source.reader(SCHEMA),
    "streamReader": lambda source: begun(source.streamReader(SCHEMA)),
    "writer": lambda source: source.writer(SCHEMA, overwrite=False),
    "streamWriter": lambda source: source.streamWriter(SCHEMA, overwrite=False),
}
HEAVY = ("pyspark_rocketpy.source.readers", "pyspark_rocketpy.sink.writers")


def begun(reader: DataSourceStreamReader) -> object:
    """Calls the refused reader as Spark does next."""
    return reader.initialOffset() if isinstance(reader, RefusedStreamReader) else reader


def source() -> DefaultSource:
    return DefaultSource({"endpoints": "127.0.0.1:1", "topic": "orders"})


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("version", ["4.1.4", "4.0.0.dev1", "3.5.9"])
def test_an_older_pyspark_is_refused_by_its_version(
    use: Callable[[DefaultSource], object], version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    # These import modules that an older PySpark lacks.
    for module in HEAVY:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(VersionError, match=f"PySpark {version} is too old, at least 4.2 is needed"):
        use(source())


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("version", ["4.2.0", "4.3.0+vendor", "4.10.1", "5.0.0.dev2"])
def test_a_newer_pyspark_is_accepted(
    use: Callable[[DefaultSource], object], version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    use(source())


def test_a_pyspark_without_python_sources_is_refused_at_the_import() -> None:
    program = "import sys; sys.modules['pyspark.sql.datasource'] = None; import pyspark_rocketpy"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "ROCKETPY_VERSION: PySpark " in done.stderr.splitlines()[-1]

"""The Python that Spark starts if this package is imported first."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from pyspark_rocketpy.interpreter import DRIVER, STARTED_BY_SPARK, WORKERS, choose_python


def chosen(tmp_path: Path, **environment: str) -> dict[str, str]:
    environment = {"PATH": str(tmp_path), **environment}
    choose_python(environment)
    return environment


def test_workers_and_driver_run_the_python_that_imports_the_package(tmp_path: Path) -> None:
    found = chosen(tmp_path)
    assert (found[WORKERS], found[DRIVER]) == (sys.executable, sys.executable)


@pytest.mark.parametrize("name", [WORKERS, DRIVER, STARTED_BY_SPARK, "SPARK_ENV_LOADED"])
def test_what_somebody_chose_stays(tmp_path: Path, name: str) -> None:
    assert chosen(tmp_path, **{name: "x"}) == {"PATH": str(tmp_path), name: "x"}


def test_the_default_stays_where_it_is_this_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python3"
    shutil.copy("/bin/sh", python)
    monkeypatch.setattr(sys, "executable", os.fspath(python))
    assert chosen(tmp_path) == {"PATH": str(tmp_path)}

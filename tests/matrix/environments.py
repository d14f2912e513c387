"""Environments of cells: folders `.venv-matrix-*`, recreated when their contents have changed.

An incomplete folder has no stamp and is recreated.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

from tests.installation import OURS, requirements
from tests.matrix.cells import LOWEST, REFUSED, Cell

TOP = Path(__file__).parents[2]
EXTRAS = ("broker", "metrics", "test")
# From the time of the lowest typer: newer ones warn about that typer's imports.
CLICK = "click==8.2.*"


def packages(cell: Cell) -> list[str]:
    """Returns the arguments of pip, which runs in the project's folder."""
    pyspark = f"pyspark=={cell.pyspark}.*"
    if cell.suite == REFUSED:
        return ["-e", ".", pyspark, "pandas<3"]
    # pandas is a dependency of tests, not of the package: Spark's own range applies.
    wanted = ["-e", f".[{','.join(EXTRAS)}]", "pandas<3"]
    if cell.libraries == LOWEST:
        return [*wanted, pyspark, *lowest(), CLICK]
    return [*wanted, pyspark.replace("pyspark", "pyspark[connect]", 1)]


def lowest() -> list[str]:
    """Returns the lower bound of each library as the newest release of that version line."""
    asked_for = requirements(distribution(OURS), {"broker", "metrics"})
    bounds = [(each.name, bound) for each in asked_for for bound in each.specifier]
    return sorted({f"{name}=={at.version}.*" for name, at in bounds if at.operator == ">="})


def make(cell: Cell, interpreter: Path) -> Path:
    """Creates the environment if needed; returns its interpreter. Raises CalledProcessError."""
    folder = TOP / f".venv-matrix-{cell.name}"
    python, stamp = folder / "bin" / "python", folder / "installed"
    words = packages(cell)
    content = json.dumps([str(interpreter), words, (TOP / "pyproject.toml").read_text("utf-8")])
    digest = hashlib.sha256(content.encode()).hexdigest()
    if not stamp.exists() or stamp.read_text("utf-8") != digest:
        sys.stdout.write(f"matrix: creating {folder.name}\n")
        sys.stdout.flush()
        subprocess.run([interpreter, "-m", "venv", "--clear", folder], check=True)
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, *words], check=True, cwd=TOP)
        stamp.write_text(digest, encoding="utf-8")
    return python


def versions(python: Path) -> dict[str, str]:
    """Returns the environment's versions: of each library, by name, and of Python."""
    words = [str(python), "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"]
    listed = subprocess.run(words, capture_output=True, text=True, check=True)
    found = {each["name"].lower(): str(each["version"]) for each in json.loads(listed.stdout)}
    tell = [str(python), "-c", "import platform; print(platform.python_version())"]
    found["python"] = subprocess.run(
        tell, capture_output=True, text=True, check=True
    ).stdout.strip()
    return found

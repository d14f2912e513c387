"""The wheel: what is in it, and that it works in an environment with nothing but its dependencies.

Each environment is a fresh venv that sees our wheel, unpacked by pip, and links to exactly the
files of the libraries that the wheel asks for. Nothing is downloaded.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path
from zipfile import Path as ZipPath
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

TOP = Path(__file__).resolve().parents[2]
PACKAGES = ("pyspark_rocketpy", "rocketpy_broker", "rocketpy_proto")
BROKER_EXTRA = ("typer", "rich", "isal", "lark", "grpc_health", "grpc_reflection")
HINT = "pip install 'pyspark-rocketpy[broker]'"

Environment = Callable[..., Path]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the work tree."""
    folder = tmp_path_factory.mktemp("wheel")
    build = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(TOP)]
    run(Path(sys.executable), *build)
    (wheel,) = folder.glob("pyspark_rocketpy-*.whl")
    return wheel


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Makes a venv with the wheel and some of its extras; returns its `bin`."""

    def make(*extras: str) -> Path:
        folder = tmp_path_factory.mktemp("-".join(["environment", *extras]))
        venv.create(folder, symlinks=True)
        python = folder / "bin" / "python"
        install = ["install", "-q", "--no-index", "--no-deps", "--disable-pip-version-check"]
        run(Path(sys.executable), "-m", "pip", "--python", str(python), *install, str(wheel))
        (site_packages,) = folder.glob("lib/python*/site-packages")
        for library in required(metadata_of(wheel), set(extras)).values():
            link_files(library, site_packages)
        return python.parent

    return make


def run(program: Path, *arguments: str) -> str:
    """Run to the end, away from the work tree; its output."""
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    outside["PYSPARK_PYTHON"] = str(program.parent / "python")
    done = subprocess.run(
        [program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=outside,
        cwd="/",
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def metadata_of(wheel: Path) -> Distribution:
    name = "-".join(wheel.name.split("-")[:2])
    return PathDistribution(ZipPath(ZipFile(wheel), f"{name}.dist-info/"))


def requirements(library: Distribution, extras: set[str]) -> Iterator[Requirement]:
    """What `library` asks for, on this machine, with `extras`."""
    for text in library.requires or []:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in {"", *extras}):
            yield requirement


def required(library: Distribution, extras: set[str]) -> dict[str, Distribution]:
    """Every library that `library` needs, directly or not, by name."""
    found: dict[str, Distribution] = {}
    waiting = list(requirements(library, extras))
    while waiting:
        requirement = waiting.pop()
        if requirement.name not in found:
            found[requirement.name] = distribution(requirement.name)
            waiting += requirements(found[requirement.name], requirement.extras)
    return found


def link_files(library: Distribution, site_packages: Path) -> None:
    for file in library.files or []:
        if ".." not in file.parts and "__pycache__" not in file.parts:
            link = site_packages / file
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(Path(str(file.locate())))


def test_the_wheel_holds_three_typed_packages_and_the_stubs(wheel: Path) -> None:
    names = set(ZipFile(wheel).namelist())
    for package in PACKAGES:
        assert f"{package}/__init__.py" in names
        assert f"{package}/py.typed" in names
    for stub in ("common_pb2.py", "broker_pb2.pyi", "broker_pb2_grpc.py", "admin_pb2_grpc.py"):
        assert f"rocketpy_proto/rocketpy/v1/{stub}" in names


def test_the_wheel_holds_nothing_else(wheel: Path) -> None:
    tops = {name.partition("/")[0] for name in ZipFile(wheel).namelist()}
    assert tops == {*PACKAGES, "-".join(wheel.name.split("-")[:2]) + ".dist-info"}


def test_the_connector_depends_on_four_libraries(wheel: Path) -> None:
    names = {requirement.name for requirement in requirements(metadata_of(wheel), set())}
    assert names == {"grpcio", "protobuf", "pyarrow", "numpy"}


def test_the_connector_imports_without_the_broker_extra(environment: Environment) -> None:
    missing = f"all(importlib.util.find_spec(name) is None for name in {BROKER_EXTRA})"
    program = (
        "import importlib.util, pyspark_rocketpy, rocketpy_proto.record\n"
        "from rocketpy_proto.rocketpy.v1 import admin_pb2_grpc, broker_pb2_grpc\n"
        f"print(pyspark_rocketpy.DefaultSource.name(), {missing})\n"
    )
    assert run(environment("spark") / "python", "-c", program) == "rocketpy True\n"


def test_the_command_without_the_broker_extra_says_what_to_install(
    environment: Environment,
) -> None:
    command = environment() / "rocketpy"
    done = subprocess.run([command], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert HINT in done.stderr
    assert "Traceback" not in done.stderr


def test_the_broker_needs_no_spark(environment: Environment) -> None:
    programs = environment("broker")
    program = (
        "import importlib.util\n"
        "from rocketpy_broker import LocalBroker\n"
        "with LocalBroker() as broker:\n"
        "    broker.create_topic('orders', queues=1)\n"
        "print(importlib.util.find_spec('pyspark'))\n"
    )
    assert run(programs / "python", "-c", program) == "None\n"
    assert "broker" in run(programs / "rocketpy", "--help")


ROUND_TRIP = """
from pyspark.sql import SparkSession
from rocketpy_broker import LocalBroker

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
with LocalBroker() as broker:
    broker.create_topic("orders", queues=2)
    options = {"endpoints": broker.endpoint, "topic": "orders"}
    orders = spark.range(3).selectExpr("cast(id as string) as body")
    orders.write.format("rocketpy").options(**options).mode("append").save()
    rows = spark.read.format("rocketpy").options(**options).load().collect()
    print("read back", sorted(bytes(row.body) for row in rows))
spark.stop()
"""


@pytest.mark.spark
def test_spark_finds_the_installed_connector_by_its_name(environment: Environment) -> None:
    printed = run(environment("broker", "spark") / "python", "-c", ROUND_TRIP)
    assert "read back [b'0', b'1', b'2']" in printed


def test_pytest_loads_the_plugin_without_heavy_libraries() -> None:
    program = (
        "import sys, rocketpy_broker.pytest_plugin\n"
        "print([name for name in ('grpc', 'numpy', 'pyarrow', 'typer') if name in sys.modules])\n"
    )
    assert run(Path(sys.executable), "-c", program) == "[]\n"

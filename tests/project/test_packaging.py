"""The wheel: its content, and a test that it works with only its dependencies."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support.documents import TOP, runnable
from tests.support.installation import Environment, metadata_of, requirements, run

PACKAGES = ("pyspark_rocketpy", "rocketpy_broker", "rocketpy_proto")
BROKER_EXTRA = ("typer", "rich", "isal", "lark", "grpc_health", "grpc_reflection")
HINT = "pip install 'pyspark-rocketpy[broker]'"


def test_the_wheel_holds_three_typed_packages_and_the_stubs(wheel: Path) -> None:
    names = set(ZipFile(wheel).namelist())
    for package in PACKAGES:
        assert f"{package}/__init__.py" in names
        assert f"{package}/py.typed" in names
    for stub in ("common_pb2.py", "broker_pb2.pyi", "broker_pb2_grpc.py", "admin_pb2_grpc.py"):
        assert f"rocketpy_proto/rocketpy/v1/{stub}" in names
    for stub in ("definition_pb2.py", "service_pb2.pyi", "service_pb2_grpc.py"):
        assert f"rocketpy_proto/apache/rocketmq/v2/{stub}" in names


def test_the_wheel_holds_nothing_else(wheel: Path) -> None:
    tops = {name.partition("/")[0] for name in ZipFile(wheel).namelist()}
    assert tops == {*PACKAGES, "-".join(wheel.name.split("-")[:2]) + ".dist-info"}


def test_the_long_description_stands_alone(wheel: Path) -> None:
    description = metadata_of(wheel).read_text("METADATA") or ""
    assert "the source (`docs/source.md`)" in description.lower()
    assert re.findall(r"\]\((?!https?://)", description) == []


def test_the_connector_depends_on_five_libraries(wheel: Path) -> None:
    names = {requirement.name for requirement in requirements(metadata_of(wheel), set())}
    assert names == {"grpcio", "msgspec", "protobuf", "pyarrow", "numpy"}


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


@pytest.mark.parametrize(
    ("extras", "program", "hint"),
    [
        ((), "from rocketpy_broker import LocalBroker", HINT),
        ((), "import pyspark_rocketpy", "pip install 'pyspark-rocketpy[spark]'"),
        (
            ("broker",),
            "from rocketpy_broker import BrokerContainer",
            "pip install 'pyspark-rocketpy[broker,testcontainers]'",
        ),
    ],
)
def test_an_import_without_its_extra_says_what_to_install(
    environment: Environment, extras: tuple[str, ...], program: str, hint: str
) -> None:
    python = environment(*extras) / "python"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert hint in done.stderr.splitlines()[-1]


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


@pytest.mark.spark
def test_the_readme_s_first_program_runs_from_a_shell_that_knows_no_environment(
    environment: Environment, tmp_path: Path
) -> None:
    programs = environment("broker", "spark")
    program = tmp_path / "qs.py"
    blocks = [block for block in runnable("python") if block.path == TOP / "README.md"]
    [pasted] = [block for block in blocks if not block.note]
    program.write_text(pasted.text, encoding="utf-8")
    assert len(program.read_text(encoding="utf-8").splitlines()) <= 20
    assert run(programs / "python", str(program)).splitlines()[-1] == "1000"


@pytest.mark.spark
def test_rows_are_sent_back_with_what_the_readme_installs(
    environment: Environment, tmp_path: Path
) -> None:
    """Needs pandas for PySpark's mapInArrow, which PySpark alone does not install."""
    program = tmp_path / "send_back.py"
    [shown] = [block for block in runnable("python") if "pyspark_rocketpy.send_back(" in block.text]
    program.write_text(shown.text, encoding="utf-8")
    said = run(environment("broker", "spark") / "python", str(program))
    assert "1 come again, 0 were given up" in said.splitlines()


def test_pytest_loads_the_plugin_without_heavy_libraries() -> None:
    program = (
        "import sys, rocketpy_broker.pytest_plugin\n"
        "print([name for name in ('grpc', 'numpy', 'pyarrow', 'typer') if name in sys.modules])\n"
    )
    assert run(Path(sys.executable), "-c", program) == "[]\n"

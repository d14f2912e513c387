"""The Dockerfile: no linter warnings, a small context, and consistent stages."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import metadata, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from rocketpy_broker.cli.broker.network_options import NAME_SERVER_PORT, REMOTING_PORT
from rocketpy_broker.cli.commands import app
from rocketpy_broker.config import BrokerConfig
from tests.support.docker.dockerfile import DOCKERFILE, context_files, stages
from tests.support.proxies import environment_with, recording_proxy

PROJECT = metadata("pyspark-rocketpy")
IMAGES = ("broker", "notebooks")


def linted(path: Path) -> subprocess.CompletedProcess[str]:
    hadolint = Path(sysconfig.get_path("scripts")) / "hadolint"
    return subprocess.run([hadolint, path], capture_output=True, text=True, check=False)


def test_the_linter_has_no_complaint() -> None:
    done = linted(DOCKERFILE)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_linter_finds_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    text = DOCKERFILE.read_text(encoding="utf-8")
    path.write_text(text.replace('CMD ["broker"', 'CMD rocketpy ["broker"'), encoding="utf-8")
    assert "DL3025" in linted(path).stdout


def test_the_context_has_what_is_copied_and_nothing_else() -> None:
    files = context_files()
    tops = {path.partition("/")[0] for path in files}
    copied = {
        source.partition("/")[0]
        for stage in stages().values()
        for copy in stage.all("COPY")
        if "from" not in copy.flags
        for source in copy.arguments[:-1]
    }
    assert tops == copied | {".dockerignore"}  # An engine also gets its own list.
    assert not [path for path in files if "__pycache__" in path or path.endswith(".pyc")]


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_tells_what_it_is(name: str) -> None:
    labels = stages()[name].labels
    prefix = "org.opencontainers.image."
    assert labels[f"{prefix}version"] == PROJECT["Version"]
    assert labels[f"{prefix}licenses"] == PROJECT["License-Expression"]
    assert labels[f"{prefix}title"] == f"rocketpy {name}"
    assert labels[f"{prefix}description"]


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_has_a_python_that_the_package_allows(name: str) -> None:
    found = re.fullmatch(r"python:(3\.\d+)-slim-bookworm", stages()[name].base)
    assert found is not None
    assert f"{found[1]}.0" in SpecifierSet(PROJECT["Requires-Python"])


@pytest.mark.parametrize("name", IMAGES)
def test_signals_reach_the_program_itself(name: str) -> None:
    """Asserts the exec form: a shell as process 1 would not forward signals."""
    stage = stages()[name]
    for command in ("ENTRYPOINT", "CMD"):
        assert all(instruction.text.startswith("[") for instruction in stage.all(command))
    assert stage.last("STOPSIGNAL").text == "SIGTERM"


def test_the_broker_listens_where_it_is_exposed_and_asked() -> None:
    stage = stages()["broker"]
    port, http_port, remoting_port, name_server_port = stage.last("EXPOSE").words
    words = stage.last("CMD").words
    assert words[-1] == "--insecure"
    options = dict(zip(words[1:-1:2], words[2:-1:2], strict=True))
    assert options["--http-port"] == http_port
    assert options["--remoting-port"] == remoting_port == str(REMOTING_PORT)
    assert options["--name-server-port"] == name_server_port == str(NAME_SERVER_PORT)
    assert options["--port"] == port == str(BrokerConfig(Path()).port)
    assert options["--host"] == "0.0.0.0"
    assert options["--data"] in stage.last("VOLUME").words
    assert f"127.0.0.1:{port}" in stage.health_command


@pytest.mark.parametrize("place", ["CMD", "HEALTHCHECK"])
def test_the_commands_are_the_command_line_s(place: str) -> None:
    stage = stages()["broker"]
    words = stage.last("CMD").words if place == "CMD" else stage.health_command[1:]
    known = {command.name for command in app.registered_commands}
    assert words[0] in known | {group.name for group in app.registered_groups}
    assert stage.last("ENTRYPOINT").words == ["rocketpy"]


@pytest.mark.parametrize("status", [200, 404])
def test_jupyter_s_health_is_asked_past_the_environment_s_proxy(status: int) -> None:
    """Runs the image's command with another port, at a server that gives only Jupyter's answer."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/api" else 500)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its own name)
            """Logs nothing."""

    command = stages()["notebooks"].health_command
    with HTTPServer(("127.0.0.1", 0), Handler) as server, recording_proxy() as proxy:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        words = [word.replace(":8888/", f":{server.server_port}/") for word in command]
        asked = [sys.executable, *words[1:]]
        ended = subprocess.run(
            asked, env=environment_with(proxy.url), capture_output=True, check=False
        )
        server.shutdown()
        assert proxy.asked == []
    assert ended.returncode == (0 if status == 200 else 1), ended.stderr


def test_no_credential_is_baked_in() -> None:
    for stage in stages().values():
        named = {name for instruction in stage.all("ENV") for name in instruction.pairs}
        named |= {name for instruction in stage.all("ARG") for name in instruction.pairs}
        assert not [name for name in named if re.search("TOKEN|PASSWORD|SECRET|KEY", name)]
        assert not any("token" in word for part in stage.all("CMD") for word in part.words)


def test_a_build_without_a_target_makes_the_broker() -> None:
    assert list(stages())[-1] == "broker"


@pytest.mark.parametrize("library", ["jupyterlab", "ipywidgets"])
def test_what_the_image_adds_is_what_tests_use(library: str) -> None:
    asked = [Requirement(text) for text in requires("pyspark-rocketpy") or []]
    (ours,) = [requirement.specifier for requirement in asked if requirement.name == library]
    added = re.search(rf'"({library}[^"]+)"', DOCKERFILE.read_text(encoding="utf-8"))
    assert added is not None
    assert Requirement(added[1]).specifier == ours

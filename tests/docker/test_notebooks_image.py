"""The image of notebooks: JupyterLab asks for its token, and runs them on the broker's image."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import nbformat
import pytest

from tests.docker.builds import Builder, Container, Image
from tests.patience import PATIENCE_SECONDS

pytestmark = [pytest.mark.xdist_group("docker"), pytest.mark.timeout(300)]

SMALL = ("--commit-log-segment-bytes", str(64 << 20), "--disk-full-ratio", "1")
# A container is a process of the test's user, and Jupyter asks root whether it means it.
AS_ROOT = () if os.geteuid() else ("--allow-root",)
NOTEBOOKS = {"clusters", "exactly_once", "flights", "orders", "quick_start", "spark_connect"}


@pytest.fixture(scope="session")
def image(builder: Builder) -> Image:
    return builder.build("notebooks")


def get(container: Container, path: str, token: str) -> Any:
    headers = {"Authorization": f"token {token}"} if token else {}
    request = Request(f"http://127.0.0.1:{container.port}{path}", headers=headers)
    with urlopen(request, timeout=PATIENCE_SECONDS) as response:
        return json.load(response)


def assert_refused(container: Container, token: str) -> None:
    with pytest.raises(HTTPError, match="403") as refused:
        get(container, "/api/contents", token)
    refused.value.close()


def test_jupyter_makes_a_token_prints_it_and_asks_for_it(image: Image) -> None:
    with Container(image, *AS_ROOT) as container:
        container.wait_until_healthy()
        assert_refused(container, "")
        assert_refused(container, "guessed")
        token = re.search(r"\?token=([0-9a-f]{48})", container.log)
        assert token is not None, container.log
        shown = get(container, "/api/contents/notebooks", token[1])["content"]
        assert {item["name"] for item in shown if item["type"] == "notebook"} == {
            f"{name}.ipynb" for name in NOTEBOOKS
        }
        assert container.stop() == 0, container.log


def test_a_token_of_one_s_own_is_taken_and_not_printed(image: Image) -> None:
    with Container(image, *AS_ROOT, environment={"JUPYTER_TOKEN": "of-my-own"}) as container:
        container.wait_until_healthy()
        assert_refused(container, "")
        assert get(container, "/api/contents", "of-my-own")["type"] == "directory"
        assert "of-my-own" not in container.log


def test_an_empty_token_does_not_open_the_door(image: Image) -> None:
    """As when somebody writes JUPYTER_TOKEN= into an environment file."""
    with Container(image, *AS_ROOT, environment={"JUPYTER_TOKEN": ""}) as container:
        container.wait_until_healthy()
        assert_refused(container, "")


def test_the_user_owns_what_it_works_in_and_is_not_root(image: Image) -> None:
    (volume,) = image.stage.last("VOLUME").words
    home = image.environment["HOME"]
    for folder in (home, volume, f"{home}/notebooks"):
        assert image.owners[folder] == image.user == "10001:10001"
    assert image.environment["ROCKETPY_CHARTS"] == volume


@pytest.mark.slow
@pytest.mark.spark
def test_a_notebook_runs_in_jupyter_on_the_broker_s_image(
    builder: Builder, image: Image, tmp_path: Path
) -> None:
    """A second run would meet what the first one has left on the broker: names of writers."""
    data = ("--data", str(tmp_path / "store"))
    with Container(builder.build("broker"), *SMALL, *data) as broker:
        broker.wait_until_healthy()
        java = {"JDK_JAVA_OPTIONS": os.environ["JDK_JAVA_OPTIONS"]}
        endpoint = f"127.0.0.1:{broker.port}"
        told = {"ROCKETPY_ENDPOINT": endpoint, "ROCKETPY_PAYMENTS": "2000"}
        container = Container(image, environment={**told, **java})
        for run in range(2):
            output = f"exactly_once-{run}.ipynb"
            words = ("execute", f"--output=/tmp/{output}", "notebooks/exactly_once.ipynb")
            done = container.run("jupyter", *words)
            assert done.returncode == 0, done.stderr
            last = nbformat.read(image.root / "tmp" / output, as_version=4).cells[-1].outputs[-1]
            assert last["text"].splitlines()[-1] == "2000 payments, each booked once."
        topics = broker.run("rocketpy", "topic", "list", "--endpoint", "127.0.0.1:8081").stdout
        assert not re.search("orders|payments|bookings", topics)
        counted = broker.run("rocketpy", "stats", "--endpoint", "127.0.0.1:8081").stdout
        assert re.search(r"get found count\s+[1-9]", counted), counted

"""The notebooks' image: JupyterLab requires its token, and its user owns its folders."""

from __future__ import annotations

import json
import re

import pytest

from tests.interop.containers.podman import Container, inspect
from tests.support.time_limits import WAIT_SECONDS_MAX

pytestmark = [
    pytest.mark.interop,
    pytest.mark.xdist_group("containers"),
    pytest.mark.timeout(2 * WAIT_SECONDS_MAX),
]
IMAGE = "rocketpy-notebooks"
NOTEBOOKS = {
    *("clusters", "exactly_once", "failover", "flights", "orders", "quick_start", "sdk_alerts"),
    "spark_connect",
}
# Prints the status and the text of an answer of JupyterLab.
GET = """
import sys, urllib.error, urllib.request
request = urllib.request.Request("http://127.0.0.1:8888" + sys.argv[1])
if sys.argv[2]:
    request.add_header("Authorization", "token " + sys.argv[2])
try:
    with urllib.request.urlopen(request) as answer:
        print(answer.status, answer.read().decode())
except urllib.error.HTTPError as error:
    print(error.code, "-")
"""

# Prints the file from which a worker of Spark has imported PySpark.
WORKER = """
from pyspark.sql import SparkSession
context = SparkSession.builder.master("local[1]").getOrCreate().sparkContext
print(context.parallelize([0], 1).map(lambda _: __import__("pyspark").__file__).first())
"""


def get(container: Container, path: str, token: str) -> tuple[int, str]:
    status, text = container.run("python", "-c", GET, path, token).split(" ", 1)
    return int(status), text


def test_jupyter_draws_a_token_prints_it_and_asks_for_it() -> None:
    with Container(IMAGE) as container:
        container.wait_until_healthy()
        for wrong in ("", "guessed"):
            assert get(container, "/api/contents", wrong)[0] == 403
        token = re.search(r"\?token=([0-9a-f]{48})", container.log)
        assert token is not None, container.log
        status, text = get(container, "/api/contents/notebooks", token[1])
        assert status == 200
        shown = json.loads(text)["content"]
        assert {item["name"] for item in shown if item["type"] == "notebook"} == {
            f"{name}.ipynb" for name in NOTEBOOKS
        }
        assert container.stop() == 0, container.log


@pytest.mark.parametrize(("token", "status"), [("of-my-own", 200), ("", 403)])
def test_a_token_of_the_environment_counts_unless_it_is_empty(token: str, status: int) -> None:
    with Container(IMAGE, options=(f"--env=JUPYTER_TOKEN={token}",)) as container:
        container.wait_until_healthy()
        assert get(container, "/api/contents", "")[0] == 403
        assert get(container, "/api/contents", token)[0] == status
        assert "of-my-own" not in container.log


def test_the_user_owns_its_folders_and_is_not_root() -> None:
    config = inspect(IMAGE)["Config"]
    assert config["User"] == "10001:10001"
    assert list(config["Volumes"]) == ["/home/rocketpy/work"]
    with Container(IMAGE) as container:
        folders = ("/home/rocketpy", "/home/rocketpy/work", "/home/rocketpy/notebooks")
        owners = container.run("stat", "-c", "%u:%g", *folders).split()
        assert owners == ["10001:10001"] * 3


def test_workers_import_compiled_pyspark() -> None:
    with Container(IMAGE) as container:
        found = container.run("python", "-c", WORKER).split()[-1]
        assert found.endswith("-packages/pyspark/__init__.py"), found

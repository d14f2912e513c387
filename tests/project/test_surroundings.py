"""A notebook's broker, and what a notebook leaves on an external broker."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from IPython.display import Image
from matplotlib.figure import Figure

from rocketpy_broker import LocalBroker
from rocketpy_broker.embedded.local_broker import LocalBrokerError

FOLDER = Path(__file__).parents[2] / "notebooks"


@pytest.fixture
def surroundings(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns the class, as a notebook beside it imports it; no broker is named."""
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.delenv("ROCKETPY_ENDPOINT", raising=False)
    return importlib.import_module("surroundings").Surroundings


def test_a_notebook_has_a_broker_of_its_own(surroundings: Any) -> None:
    with surroundings({}) as here:
        broker = here.broker()
        assert isinstance(broker, LocalBroker)
        broker.create_topic("own", queues=1)
        pid = broker.pid
        assert Path(f"/proc/{pid}").exists()
    assert not Path(f"/proc/{pid}").exists()


def test_the_environment_names_another_broker(
    surroundings: Any, rocketpy_broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCKETPY_ENDPOINT", rocketpy_broker.endpoint)
    with surroundings({}) as here:
        broker = here.broker()
        assert not isinstance(broker, LocalBroker)
        assert broker.endpoint == rocketpy_broker.endpoint
        broker.create_topic("of-a-notebook", queues=1)
        with pytest.raises(LocalBrokerError, match="'of-a-notebook' exists already"):
            rocketpy_broker.create_topic("of-a-notebook")
    rocketpy_broker.create_topic("of-a-notebook")
    rocketpy_broker.delete_topic("of-a-notebook")


def test_a_topic_of_somebody_else_stays(
    surroundings: Any, rocketpy_broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    rocketpy_broker.create_topic("precious", queues=1)
    monkeypatch.setenv("ROCKETPY_ENDPOINT", rocketpy_broker.endpoint)
    way_out = f"rocketpy topic delete precious --endpoint {rocketpy_broker.endpoint}"
    with pytest.raises(LocalBrokerError, match=way_out), surroundings({}) as here:
        here.broker().create_topic("precious")
    rocketpy_broker.delete_topic("precious")


def test_a_broker_that_does_not_answer_is_named(
    surroundings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = "127.0.0.1:1"
    monkeypatch.setenv("ROCKETPY_ENDPOINT", endpoint)
    said = f"no broker answers at {endpoint} .UNAVAILABLE.*parameter `endpoint`"
    with pytest.raises(LocalBrokerError, match=said), surroundings({}) as here:
        here.broker()


def test_a_connect_server_that_ends_at_once_is_told_and_leaves_nothing(
    surroundings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("surroundings")
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "--nonsense")
    said = "Spark's Connect server has ended with 1"
    with pytest.raises(module.ConnectServerError, match=said), surroundings({}) as here:
        here.connect_session()


def test_a_picture_is_shown_in_jupyter_and_saved_elsewhere(
    surroundings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure, path = Figure(), tmp_path / "picture.png"
    shown: list[Image] = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    surroundings({"get_ipython": None}).plot(figure, path)
    assert [image.data[:4] for image in shown] == [b"\x89PNG"]
    assert not path.exists()
    surroundings({}).plot(figure, path)
    assert path.read_bytes()[:4] == b"\x89PNG"

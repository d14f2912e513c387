"""The option `--log-level` of `rocketpy broker`."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker, LocalBrokerError
from tests.support.broker.shell import ended, environment


def log_of_a_start(data: Path, *words: str, **names: str) -> str:
    """Starts a broker that stops at once; returns what it wrote to standard error."""
    command = ["broker", "--data", str(data), "--port", "0", "--stop-at-eof", *words]
    done = ended(*command, env=environment(**names))
    assert done.returncode == 0
    assert "ready" in done.stdout
    return done.stderr


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """Returns the directory of a killed broker: its next start logs a warning."""
    with LocalBroker(tmp_path / "store", commit_log_segment_bytes=1 << 30) as broker:
        broker.create_topic("T")
        broker.send("T", "a")
        broker.kill()
    return tmp_path / "store"


def test_a_warning_is_logged_without_the_option(killed: Path) -> None:
    assert "WARNING rocketpy_broker.broker_program: recovered after a crash" in (
        log_of_a_start(killed)
    )


def test_errors_alone_are_logged_on_request(killed: Path) -> None:
    assert "recovered" not in log_of_a_start(killed, "--log-level", "error")


def test_a_local_broker_takes_a_level_of_the_environment(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCKETPY_LOG_LEVEL", "loud")
    said = "ROCKETPY_LOG_LEVEL is 'loud', accepted is debug, info, warning, error"
    with pytest.raises(LocalBrokerError, match=said):
        LocalBroker(killed).start()
    # A variable that is set and empty is none.
    monkeypatch.setenv("ROCKETPY_LOG_LEVEL", "")
    with LocalBroker(killed) as broker:
        assert "recovered after a crash" in broker.log_text()


def test_the_environment_sets_the_level(killed: Path) -> None:
    assert "recovered" not in log_of_a_start(killed, ROCKETPY_LOG_LEVEL="error")

"""`rocketpy broker` with the stores, standard inputs and pipes that shells give it."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker
from tests.support.broker import shell
from tests.support.time_limits import WAIT_SECONDS_MAX

BROKER = ["broker", "--port", "0"]
SMALL, DEFAULT = 1 << 20, 1 << 30
STARTED_AND_STOPPED = ["rocketpy broker ready", "rocketpy broker stopped"]


def started(*options: str) -> subprocess.Popen[str]:
    return shell.started(*BROKER, *options, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def stopped(broker: subprocess.Popen[str]) -> tuple[int, str]:
    """Returns the exit code of a broker that gets SIGTERM, and its log."""
    broker.send_signal(signal.SIGTERM)
    assert broker.stderr is not None
    with broker:
        log = broker.stderr.read()
        return broker.wait(WAIT_SECONDS_MAX), log


def ended(*options: str, stdin: str) -> tuple[int, list[str], str]:
    """Runs a broker with a redirected standard input to its end; returns code, lines, errors."""
    done = subprocess.run(
        ["sh", "-c", f'"$@" {stdin}', "sh", *shell.ROCKETPY, *BROKER, *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_SECONDS_MAX,
        env=shell.environment(),
    )
    lines = [" ".join(line.split()[:3]) for line in done.stdout.splitlines()]
    return done.returncode, lines, done.stderr


@pytest.mark.parametrize("stdin", ["< /dev/null", "<&-", "< empty", "< text", "0<> /dev/null"])
def test_an_input_without_more_stops_a_broker_at_its_end(
    stdin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("text")
    monkeypatch.chdir(tmp_path)
    assert ended("--stop-at-eof", stdin=stdin) == (0, STARTED_AND_STOPPED, "")


def test_a_broker_whose_lines_nobody_reads_serves_and_stops_cleanly() -> None:
    broker = started()
    assert broker.stdout is not None
    assert broker.stdout.readline().startswith("rocketpy broker ready")
    broker.stdout.close()
    assert stopped(broker) == (0, "")


def test_a_broker_without_a_reader_from_its_start_stops_cleanly(tmp_path: Path) -> None:
    broker = started("--data", str(tmp_path / "store"))
    assert broker.stdout is not None
    broker.stdout.close()
    # The broker has written this when it serves.
    while not (tmp_path / "store" / "rocketpy" / "manifest.json").exists():
        assert broker.poll() is None
        time.sleep(0.01)
    assert stopped(broker) == (0, "")


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_store_keeps_the_sizes_that_it_was_made_with(tmp_path: Path, *, is_killed: bool) -> None:
    """Starts a broker on a LocalBroker's store, with smaller segments than the default."""
    with LocalBroker(tmp_path, commit_log_segment_bytes=SMALL) as local:
        local.create_topic("T", queues=1)
        local.send("T", "kept")
        if is_killed:
            local.kill()
    broker = started("--data", str(tmp_path))
    assert broker.stdout is not None
    ready = broker.stdout.readline()
    code, log = stopped(broker)
    assert (ready[:21], code) == ("rocketpy broker ready", 0), log
    with LocalBroker(tmp_path) as local:
        assert [message.text for message in local.messages("T")] == ["kept"]
    sizes = {path.stat().st_size for path in (tmp_path / "commitlog").iterdir()}
    assert sizes == {SMALL}


def test_another_size_that_is_asked_for_is_refused(tmp_path: Path) -> None:
    LocalBroker(tmp_path, commit_log_segment_bytes=SMALL).start().stop()
    words = ["--data", str(tmp_path), "--commit-log-segment-bytes", str(DEFAULT)]
    done = shell.ended(*BROKER, *words)
    assert (done.returncode, done.stdout) == (1, "")
    said = f"was created with commit log segments of {SMALL} bytes, not {DEFAULT}"
    assert said in done.stderr

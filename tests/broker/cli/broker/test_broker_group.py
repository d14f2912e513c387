"""`rocketpy broker`: the start of a broker, and the status of a running one."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from pathlib import Path
from subprocess import PIPE

import pytest
from typer.testing import CliRunner

from rocketpy_broker import LocalBroker
from rocketpy_broker.cli.commands import app
from tests.support.broker.shell import run, started


@pytest.mark.parametrize("words", [["broker"], ["broker", "start"]])
def test_a_broker_is_started_with_and_without_the_word(words: list[str], tmp_path: Path) -> None:
    options = ["--data", str(tmp_path / "s"), "--port", "0", "--stop-at-eof"]
    with started(*words, *options, stdin=PIPE, stdout=PIPE) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        rest, _ = process.communicate("")
    assert f"data={tmp_path / 's'} flush=SYNC_FLUSH" in ready
    assert (process.returncode, rest) == (0, "rocketpy broker stopped\n")


def test_help_of_the_broker_names_its_commands() -> None:
    shown = CliRunner().invoke(app, ["broker", "--help"]).output
    assert "start " in shown
    assert "status " in shown
    options = CliRunner().invoke(app, ["broker", "start", "--help"]).output
    assert "--commit-log-segment-bytes" in options


def test_an_unknown_command_or_option_of_the_broker_is_wrong_use() -> None:
    for words in (["broker", "stop"], ["broker", "--prot", "1"], ["broker", "start", "now"]):
        assert CliRunner().invoke(app, words).exit_code == 2


def test_an_empty_directory_is_wrong_use_and_this_directory_gets_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(app, ["broker", "--data", "", "--port", "0"])
    assert refused.exit_code == 2
    assert "the path is empty" in refused.output
    assert not any(tmp_path.iterdir())


def test_a_running_broker_tells_how_it_does() -> None:
    with LocalBroker() as broker:
        broker.create_topic("T", queues=2)
        broker.send("T", ["a", "b"], queue_id=0)
        broker.send("T", "later", delay_level=18)
        lines = run(broker, "broker", "status").stdout.splitlines()
        assert lines == sorted(lines)
        shown = dict(line.split(" : ", 1) for line in lines)
        assert shown["flushDiskType"] == "ASYNC_FLUSH"
        assert shown["store directory"] == str(broker.data)
        assert (shown["recovered"], shown["refusal"]) == ("no", "-")
        told = json.loads(run(broker, "broker", "status", "--json").stdout)
        assert told.keys() - shown.keys() == {"directories"}
        assert (told["messagesPut"], told["messagesPutLastDay"]) == (3, 3)
        assert (told["delayLevelPendingCount"], told["timerPendingCount"]) == (1, 0)
        counts = told["queueCount"], told["clientCount"], told["halfMessageCount"]
        assert counts == (2, 0, 0)
        assert 0 <= told["diskUsedRatio"] <= 1
        broker.kill()
        broker.restart()
        told = json.loads(run(broker, "broker", "status", "--json").stdout)
        assert told["recovered"] is True


def test_a_broker_that_is_away_is_named() -> None:
    done = CliRunner().invoke(app, ["broker", "status", "--endpoint", "127.0.0.1:1"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("rocketpy: no broker answers at 127.0.0.1:1")


def test_a_port_of_another_protocol_is_named(rocketpy_broker: LocalBroker) -> None:
    def refusal(endpoint: str) -> str:
        done = CliRunner().invoke(app, ["topic", "list", "--endpoint", endpoint])
        assert (done.exit_code, done.stdout) == (1, "")
        return done.stderr

    other = rocketpy_broker.name_server
    assert f"{other} serves another protocol; name the broker's gRPC port" in refusal(other)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        end = f"127.0.0.1:{silent.getsockname()[1]}"
        closing = threading.Thread(target=_close_each, args=(silent,), daemon=True)
        closing.start()
        assert f"{end} serves another protocol" in refusal(end)


def _close_each(server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            server.accept()[0].close()

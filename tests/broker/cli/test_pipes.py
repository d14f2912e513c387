"""Commands in a shell's pipes: plain columns, quiet ends, help that fits."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from rocketpy_broker import LocalBroker
from rocketpy_broker.cli.commands import app
from tests.support.broker.shell import ROCKETPY, ended, environment, popen, run, shown_on, started
from tests.support.time_limits import WAIT_SECONDS_MAX

ESCAPE, BOXES = "\x1b", "│┃─━┏╭"


def printed_on_a_terminal(broker: LocalBroker, *words: str) -> str:
    """Returns what a command shows on a terminal of 80 columns."""
    master, terminal = pty.openpty()
    command = [*words, "--endpoint", broker.endpoint]
    environ = environment(COLUMNS="80", TERM="xterm-256color")
    with started(*command, stdout=terminal, stderr=terminal, env=environ):
        os.close(terminal)
        return shown_on(master).decode()


def test_tables_are_for_terminals_and_columns_for_pipes(
    rocketpy_broker: LocalBroker, rocketpy_topic: str
) -> None:
    rocketpy_broker.send(rocketpy_topic, "[red]body[/red]", keys="k", queue_id=0)
    for words in (
        ["topic", "list"],
        ["lag", rocketpy_topic, "--group", "g"],
        ["message", "query", rocketpy_topic, "k"],
    ):
        piped = run(rocketpy_broker, *words).stdout
        assert not any(letter in piped for letter in (ESCAPE, *BOXES))
        assert "\t" in piped.splitlines()[0]
    shown = printed_on_a_terminal(rocketpy_broker, "message", "query", rocketpy_topic, "k")
    assert "┃" in shown
    assert "[red]body[/red]" in shown
    assert "  [red]body[/red]" in printed_on_a_terminal(
        rocketpy_broker, "message", "tail", rocketpy_topic
    )


def test_colours_that_are_forced_do_not_come_into_a_pipe(
    rocketpy_broker: LocalBroker, rocketpy_topic: str
) -> None:
    environ = environment(FORCE_COLOR="1", COLUMNS="30")
    done = ended("stats", "--endpoint", rocketpy_broker.endpoint, env=environ)
    done.check_returncode()
    assert not any(letter in done.stdout for letter in (ESCAPE, *BOXES))
    assert "corrupt record count\t0\n" in done.stdout


def test_lists_have_json_forms(rocketpy_broker: LocalBroker, rocketpy_topic: str) -> None:
    rocketpy_broker.send(rocketpy_topic, ["a", "b"], queue_id=0)
    listed = run(rocketpy_broker, "topic", "list", "--json").output.splitlines()
    [found] = [each for each in map(json.loads, listed) if each["topic"] == rocketpy_topic]
    assert (found["readQueueNums"], found["writeQueueNums"], found["perm"]) == (8, 8, 6)
    stats = json.loads(run(rocketpy_broker, "stats", "--json").output)
    [topic] = [each for each in stats["topics"] if each["topic"] == rocketpy_topic]
    assert (topic["putCount"], stats["corruptRecordCount"]) == (2, 0)
    assert stats["putLatencies"][-1]["atMostMs"] is None


@pytest.mark.parametrize(
    "words", [["-f", "--whole"], ["-f", "--json"], ["--from", "earliest", "--whole"]]
)
def test_a_reader_that_has_enough_ends_tail_quietly(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, words: list[str]
) -> None:
    rocketpy_broker.send(rocketpy_topic, ["x" * 900] * 1000)
    with popen(rocketpy_broker, "message", "tail", rocketpy_topic, *words) as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        assert "x" * 900 in tail.stdout.readline()
        tail.stdout.close()
        assert tail.wait(WAIT_SECONDS_MAX) == 0
        assert tail.stderr.read() == ""


def test_follow_shows_what_comes_until_it_is_interrupted(
    rocketpy_broker: LocalBroker, rocketpy_topic: str
) -> None:
    rocketpy_broker.send(rocketpy_topic, "before")
    with popen(rocketpy_broker, "message", "tail", rocketpy_topic, "-f", "--json") as tail:
        assert tail.stdout is not None
        assert json.loads(tail.stdout.readline())["body"] == "before"
        for body in ("then", "at last"):
            rocketpy_broker.send(rocketpy_topic, body)
            assert json.loads(tail.stdout.readline())["body"] == body
        tail.send_signal(signal.SIGINT)
        rest, errors = tail.communicate(timeout=WAIT_SECONDS_MAX)
    assert (tail.returncode, rest, errors) == (130, "", "")


def test_an_interrupt_while_the_command_is_imported_ends_it_without_a_trace(
    tmp_path: Path,
) -> None:
    """Stops in the import of `grpc`, the last module that is imported before a command runs."""
    (tmp_path / "grpc.py").write_text("print('importing', flush=True)\ninput()\n")
    command = [*ROCKETPY, "topic", "list"]
    names = environment(PYTHONPATH=str(tmp_path))
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=names
    ) as importing:
        assert importing.stdout is not None
        assert importing.stdout.readline() == "importing\n"
        importing.send_signal(signal.SIGINT)
        _, errors = importing.communicate(timeout=WAIT_SECONDS_MAX)
    # A shell reports it as 130.
    assert (importing.returncode, errors) == (-signal.SIGINT, "")


def test_a_broker_that_goes_away_ends_follow_with_its_name() -> None:
    with LocalBroker() as broker:
        broker.create_topic("T")
        broker.send("T", "a")
        with popen(broker, "message", "tail", "T", "-f") as tail:
            assert tail.stdout is not None
            assert tail.stdout.readline().endswith("a\n")
            broker.kill()
            rest, errors = tail.communicate(timeout=WAIT_SECONDS_MAX)
    assert (tail.returncode, rest) == (1, "")
    assert errors.startswith("rocketpy: no broker answers at")
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["message", "send", "T", "--body", "a"],
        ["message", "tail", "T"],
        ["topic", "list"],
        ["lag", "T", "--group", "g"],
        ["stats"],
        ["clean"],
        ["lag", "--group", "g", "--watch"],
        ["group", "list"],
        ["group", "describe", "g"],
        ["group", "create", "g"],
        ["group", "update", "g", "--consume"],
        ["group", "reset", "g", "--topic", "T", "--to", "latest"],
        ["group", "delete", "g"],
        ["topic", "describe", "T"],
        ["client", "list"],
        ["dlq", "list"],
        ["dlq", "resend", "g"],
        ["message", "view", "0" * 32],
        ["message", "resend", "0" * 32],
    ],
)
def test_a_broker_that_is_not_there_is_named(words: list[str]) -> None:
    done = CliRunner().invoke(app, [*words, "--endpoint", "127.0.0.1:1"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == (
        "rocketpy: no broker answers at 127.0.0.1:1 (UNAVAILABLE); is it running? Start one with "
        "`rocketpy broker`, or name another with --endpoint\n"
    )


def every_command() -> Iterator[tuple[str, ...]]:
    def below(command: object, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield words
        for name, each in getattr(command, "commands", {}).items():
            yield from below(each, (*words, name))

    yield from below(typer.main.get_command(app), ())


@pytest.mark.parametrize("words", list(every_command()), ids=" ".join)
def test_help_fits_on_a_terminal_of_80_columns(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80"})
    assert done.exit_code == 0
    assert max(map(len, done.output.splitlines())) <= 80
    assert "…" not in done.output
    assert not any(letter in done.output for letter in (ESCAPE, *BOXES))
    assert done.output.startswith("Usage: ")


def test_lag_of_an_unknown_group_says_so_and_of_a_known_one_what_it_has(
    rocketpy_broker: LocalBroker, rocketpy_topic: str
) -> None:
    rocketpy_broker.send(rocketpy_topic, ["a", "b", "c"], queue_id=1)
    words = ["lag", rocketpy_topic, "--group", "stranger"]
    shown = run(rocketpy_broker, *words)
    assert shown.exit_code == 0
    assert shown.stderr == "rocketpy: consumer group 'stranger' is unknown to this broker\n"
    assert shown.stdout.splitlines()[2] == "1\t0\t3\tnone\t3"
    assert shown.stdout.splitlines()[-1] == "total\t-\t-\t-\t3"
    told = json.loads(run(rocketpy_broker, *words, "--json").stdout)
    assert (told["isKnown"], told["lag"], told["queues"][1]["committedOffset"]) == (False, 3, None)


@pytest.mark.parametrize(
    "words",
    [
        ["topic", "create", "\udcff"],
        ["message", "tail", "\udcff"],
        ["lag", "T", "--group", "\udcff"],
    ],
)
def test_an_argument_that_is_no_text_is_refused(
    rocketpy_broker: LocalBroker, words: list[str]
) -> None:
    done = popen(rocketpy_broker, *words)
    _, said = done.communicate()
    assert (done.returncode, said) == (1, "rocketpy: an argument is not valid UTF-8\n")


def test_output_that_cannot_be_written_is_told_in_a_line(rocketpy_broker: LocalBroker) -> None:
    words = [*ROCKETPY, "topic", "list", "--endpoint", rocketpy_broker.endpoint]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            words, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment()
        )
    assert done.returncode != 0
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


def test_output_that_is_closed_swallows_what_is_printed(rocketpy_broker: LocalBroker) -> None:
    command = f"{' '.join(ROCKETPY)} topic list --endpoint {rocketpy_broker.endpoint} >&-"
    done = subprocess.run(
        ["sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False, env=environment()
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("endpoint", ["localhost", "h:port", "http://127.0.0.1:8081", "h:70000"])
def test_an_endpoint_of_another_form_is_refused(endpoint: str) -> None:
    done = CliRunner().invoke(app, ["topic", "list", "--endpoint", endpoint])
    assert done.exit_code == 1
    accepted = "accepted is host:port, an IPv6 address in brackets"
    assert done.output == f"rocketpy: the endpoint is {endpoint!r}, {accepted}\n"

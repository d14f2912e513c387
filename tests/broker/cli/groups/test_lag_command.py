"""`rocketpy lag` over topics and groups, once and repeatedly."""

from __future__ import annotations

import json
import os
import pty
import signal

from rocketpy_broker import LocalBroker
from tests.support.broker.shell import environment, popen, run, started
from tests.support.time_limits import WAIT_SECONDS_MAX


def two_topics(broker: LocalBroker, name: str) -> tuple[str, str]:
    """Returns two topics of three messages; group `name` has two and none of them left to read."""
    first, second = f"{name}-1", f"{name}-2"
    for topic in (first, second):
        broker.create_topic(topic, queues=1)
        broker.send(topic, ["a", "b", "c"])
    broker.pull(first, name, 1)
    broker.pull(second, name, 3)
    return first, second


def test_a_group_s_lag_is_shown_in_all_its_topics(rocketpy_broker: LocalBroker) -> None:
    first, second = two_topics(rocketpy_broker, "lag-all")
    shown = run(rocketpy_broker, "lag", "--group", "lag-all").stdout.splitlines()
    assert shown == [
        "consumer group\ttopic\tqueues\tlag",
        f"lag-all\t{first}\t1\t2",
        f"lag-all\t{second}\t1\t0",
        "lag-all\ttotal\t2\t2",
    ]
    told = json.loads(run(rocketpy_broker, "lag", "--group", "lag-all", "--json").stdout)
    assert (told["consumerGroup"], told["lag"]) == ("lag-all", 2)
    assert [(each["topic"], each["lag"]) for each in told["topics"]] == [(first, 2), (second, 0)]


def test_lags_of_several_topics_and_groups_are_shown_each(rocketpy_broker: LocalBroker) -> None:
    first, second = two_topics(rocketpy_broker, "lag-each")
    rocketpy_broker.pull(first, "lag-other", 2)
    shown = run(rocketpy_broker, "lag", first, second).stdout.splitlines()
    assert shown[1:] == [
        f"{first}\tlag-each\t2",
        f"{first}\tlag-other\t1",
        f"{second}\tlag-each\t0",
    ]
    words = ["lag", first, second, "--group", "lag-each", "--group", "lag-nobody"]
    done = run(rocketpy_broker, *words)
    assert f"{second}\tlag-nobody\t3" in done.stdout
    assert done.stderr == "rocketpy: consumer group 'lag-nobody' is unknown to this broker\n"
    rows = [json.loads(line) for line in run(rocketpy_broker, *words, "--json").stdout.splitlines()]
    assert [each["lag"] for each in rows] == [2, 3, 0, 3]


def test_lag_of_nothing_is_wrong_use_and_of_an_unknown_group_a_refusal(
    rocketpy_broker: LocalBroker,
) -> None:
    assert run(rocketpy_broker, "lag").exit_code == 2
    refused = run(rocketpy_broker, "lag", "--group", "lag-never")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "'lag-never' does not exist" in refused.stderr
    assert run(rocketpy_broker, "lag", "T", "--watch", "--interval", "0").exit_code == 2


def test_a_watched_lag_goes_on_until_it_is_interrupted(rocketpy_broker: LocalBroker) -> None:
    first, _ = two_topics(rocketpy_broker, "lag-watch")
    words = ["lag", first, "--group", "lag-watch", "--watch", "--interval", "0.1", "--json"]
    with popen(rocketpy_broker, *words) as watching:
        assert watching.stdout is not None
        told = json.loads(watching.stdout.readline())
        assert (told["lag"], told["time"][-1]) == (2, "Z")
        rocketpy_broker.pull(first, "lag-watch")
        while told["lag"]:
            told = json.loads(watching.stdout.readline())
        watching.send_signal(signal.SIGINT)
        _, errors = watching.communicate(timeout=WAIT_SECONDS_MAX)
    assert (watching.returncode, errors) == (130, "")


def test_a_watched_lag_ends_quietly_when_nobody_reads_it(rocketpy_broker: LocalBroker) -> None:
    first, _ = two_topics(rocketpy_broker, "lag-read")
    with popen(rocketpy_broker, "lag", first, "-w", "--interval", "3600") as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        lines = [watching.stdout.readline() for _ in range(3)]
        assert lines[0].startswith("time\t")
        assert lines[1:] == ["consumer group\tlag\n", "lag-read\t2\n"]
        watching.stdout.close()
        assert (watching.wait(WAIT_SECONDS_MAX), watching.stderr.read()) == (0, "")


def test_a_broker_that_goes_away_ends_watching_with_its_name() -> None:
    with LocalBroker() as broker:
        broker.create_topic("T")
        with popen(broker, "lag", "T", "--watch", "--interval", "0.1") as watching:
            assert watching.stdout is not None
            watching.stdout.readline()
            broker.kill()
            _, errors = watching.communicate(timeout=WAIT_SECONDS_MAX)
    assert watching.returncode == 1
    assert errors.startswith("rocketpy: no broker answers at")


def test_a_terminal_sees_a_table_that_changes_in_place(rocketpy_broker: LocalBroker) -> None:
    first, _ = two_topics(rocketpy_broker, "lag-live")
    master, terminal = pty.openpty()
    words = ["lag", first, "--group", "lag-live", "-w", "--interval", "0.1"]
    words += ["--endpoint", rocketpy_broker.endpoint]
    environ = environment(COLUMNS="80", LINES="40", TERM="xterm-256color")
    with started(*words, stdout=terminal, stderr=terminal, env=environ) as watching:
        os.close(terminal)
        # A read may end within a character.
        seen = b""
        while b"\x1b[1A" not in seen:
            seen += os.read(master, 4096)
        watching.send_signal(signal.SIGINT)
        while part := _read(master):
            seen += part
    os.close(master)
    assert watching.returncode == 130
    shown = seen.decode()
    assert "committed" in shown
    # The cursor is visible again.
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except OSError:
        return b""

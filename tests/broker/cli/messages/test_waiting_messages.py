"""`rocketpy message send` of delayed messages, and `recall`, as a person uses them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.runtime.clock import SystemClock
from rocketpy_broker.runtime.time_format import time_of_ms
from tests.support.broker.shell import run


def test_d02_a_message_is_sent_to_come_later(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, tmp_path: Path
) -> None:
    words = ["message", "send", rocketpy_topic, "--body", "x", "--delay-level", "18"]
    assert "comes later, id " in run(rocketpy_broker, *words).output
    file = tmp_path / "messages"
    lines = [{"body": "y", "delayLevel": 17}, {"body": "z", "deliverAt": "2000-01-01T00:00:00Z"}]
    file.write_text("\n".join(json.dumps(line) for line in lines))
    done = run(rocketpy_broker, "message", "send", rocketpy_topic, "--file", str(file), "--json")
    assert json.loads(done.output) == {"topic": rocketpy_topic, "sent": 2}
    assert [message.text for message in rocketpy_broker.messages(rocketpy_topic)] == ["z"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--deliver-at", "tomorrow"], "'tomorrow' is no time; write it like"),
        (["--deliver-at", "2026-05-01T08:00:00"], "has no time zone"),
        (["--delay-level=-1"], "Invalid value for '--delay-level'"),
        (
            ["--deliver-at", "2200-01-01T00:00:00Z"],
            "at 2200-01-01T00:00:00.000Z, accepted is up to 3 days from now",
        ),
    ],
)
def test_d02_a_delay_that_cannot_be_is_refused(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, words: list[str], said: str
) -> None:
    done = run(rocketpy_broker, "message", "send", rocketpy_topic, "--body", "x", *words)
    assert done.exit_code != 0
    shown = done.output + done.stderr
    assert said in " ".join(shown.replace("│", "").split())
    assert rocketpy_broker.messages(rocketpy_topic) == []


def test_d03_a_message_that_waits_is_taken_back(
    rocketpy_broker: LocalBroker, rocketpy_topic: str
) -> None:
    due_ms = SystemClock().now_ms() + 3_600_000
    due = time_of_ms(due_ms)
    words = ["--body", "later", "--deliver-at", due]
    told = run(rocketpy_broker, "message", "send", rocketpy_topic, *words).output
    assert "comes later" in told
    msg_id = told.split()[-1]
    for option in (["--deliver-at", due], ["--deliver-ms", str(due_ms)]):
        done = run(rocketpy_broker, "message", "recall", rocketpy_topic, msg_id, *option)
        assert (done.exit_code, done.output) == (0, f"recalled {msg_id}, if it still waited\n")
    assert rocketpy_broker.messages(rocketpy_topic) == []
    late = run(rocketpy_broker, "message", "recall", rocketpy_topic, msg_id, "--deliver-ms", "1")
    assert late.exit_code == 1
    assert "may have been delivered" in late.output
    for wrong in ([], ["--deliver-at", due, "--deliver-ms", "1"], ["--deliver-at", "soon"]):
        refused = run(rocketpy_broker, "message", "recall", rocketpy_topic, msg_id, *wrong)
        assert refused.exit_code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--property", "DELAY=3"], "'DELAY' is not sent as a property; use --delay-level"),
        (["--property", "TIMER_DELIVER_MS=1"], "use --deliver-at"),
        (["--property", "TIMER_DELAY_SEC=1"], "use --deliver-at"),
        (["--property", "TRAN_MSG=true"], "use `rocketpy transaction send`"),
        (
            ["--delay-level", "1", "--deliver-at", "2026-05-01T08:00:00Z"],
            "give either --delay-level or --deliver-at",
        ),
    ],
)
def test_a_message_that_is_to_wait_never_comes_at_once_instead(
    rocketpy_broker: LocalBroker, rocketpy_topic: str, words: list[str], said: str
) -> None:
    done = run(rocketpy_broker, "message", "send", rocketpy_topic, "--body", "x", *words)
    shown = " ".join(done.stderr.replace("│", "").split())
    assert (done.exit_code, said in shown) == (2, True)
    assert rocketpy_broker.messages(rocketpy_topic) == []

"""The start of a LocalBroker's process: slow starts, failed starts, and their messages.

A program that prints what the test wants replaces the broker, since a broker's own start is too
quick to be watched.
"""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.embedded.process import (
    STANDSTILL_SECONDS,
    TIME_LIMIT_FACTOR_MAX,
    BrokerProcess,
    LocalBrokerError,
    ProcessProgress,
    ProgressTimeout,
    StartTimes,
    processor_seconds,
)
from rocketpy_broker.runtime.process_tuning import READY_PREFIX

READY = f"{READY_PREFIX}127.0.0.1:4711 data=x"
AT_ONCE_WARNED = StartTimes(seconds_max=60, still_starting_seconds=0.01)


def program(text: str) -> list[str]:
    return [sys.executable, "-c", f"import sys\n{text}"]


def test_a_slow_start_is_logged_with_the_last_words_and_ends_well(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, go = tmp_path / "log", tmp_path / "go"
    log.write_text("words of an earlier start\n", encoding="utf-8")

    class LetGo(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "recovering segment 7" in record.getMessage():
                go.touch()

    text = (
        "import pathlib, time\n"
        "print('recovering segment 7', file=sys.stderr, flush=True)\n"
        f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)\n"
        f"print({READY!r}, flush=True)\n"
        "sys.stdin.read()\n"
    )
    handler = LetGo()
    logging.getLogger("rocketpy_broker.embedded.process").addHandler(handler)
    try:
        process = BrokerProcess(program(text), log, AT_ONCE_WARNED)
    finally:
        logging.getLogger("rocketpy_broker.embedded.process").removeHandler(handler)
    assert process.exit_code is None
    assert "the broker is still starting after" in caplog.text
    assert "earlier start" not in caplog.text
    process.kill()


def test_a_start_that_takes_too_long_is_ended_with_its_last_words(tmp_path: Path) -> None:
    text = (
        "for line in range(100): print('line', line, file=sys.stderr, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with pytest.raises(
        LocalBrokerError, match=r"did not start within \d+ s and was killed"
    ) as caught:
        BrokerProcess(program(text), tmp_path / "log", StartTimes(seconds_max=2))
    assert caught.value.remark.endswith("line 98\nline 99")
    assert "line 79\n" not in caught.value.remark


def waited_for(progress: Callable[[int], ProcessProgress], seconds_max: float = 60) -> int:
    """Returns for how many seconds a process with this progress is waited for."""
    timeout = ProgressTimeout(seconds_max, progress(0))
    return next(each for each in itertools.count(1) if timeout.is_over(each, progress(each)))


def test_a_process_that_gets_on_is_waited_for_until_it_has_had_its_time() -> None:
    assert waited_for(lambda second: ProcessProgress(0.0, 0)) == 60
    # Its last progress was at 50.
    assert (
        waited_for(lambda second: ProcessProgress(0.0, min(second, 50))) == 50 + STANDSTILL_SECONDS
    )
    # It gets a sixth of a processor, and says nothing.
    assert waited_for(lambda second: ProcessProgress(7 + second / 6)) == 360
    # It is busy until it is stopped.
    assert waited_for(lambda second: ProcessProgress(float(second))) == 60
    assert waited_for(lambda second: ProcessProgress(0.0, second)) == 60 * TIME_LIMIT_FACTOR_MAX
    assert waited_for(lambda second: ProcessProgress(0.0, min(second, 1)), seconds_max=2) == 3


def test_the_processor_time_of_a_process_is_known_while_it_runs() -> None:
    with LocalBroker() as broker:
        pid = broker.pid
        assert processor_seconds(pid) > 0
    assert processor_seconds(pid) == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sys.exit('no such luck')", "did not start: no such luck"),
        ("pass", "did not start: it has logged nothing"),
        ("print('hello', flush=True)", "did not start"),
    ],
)
def test_a_process_that_dies_at_once_is_quoted(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(LocalBrokerError, match=said):
        BrokerProcess(program(text), tmp_path / "log", StartTimes())


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LocalBrokerError, match="/nowhere"):
        BrokerProcess(["/nowhere"], tmp_path / "log", StartTimes())


@pytest.mark.usefixtures("started_brokers")
def test_a_broker_that_has_died_says_how() -> None:
    with LocalBroker() as broker:
        broker.create_topic("T")
        process = broker._process
        assert process is not None
        process._process.kill()
        process._process.wait()
        with pytest.raises(LocalBrokerError, match="has ended with exit code -9"):
            broker.topics()
        broker.start()
        assert broker.topics() == ["T"]

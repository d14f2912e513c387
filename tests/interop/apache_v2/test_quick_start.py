"""The programs of docs/clients.md with RocketMQ's SDKs, unchanged, with default time-outs."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

import pytest

from rocketpy_broker import LocalBroker
from tests.interop.apache_v2.clients import JAVA, JAVA_SDK, PYTHON, PYTHON_SDK
from tests.interop.remoting.clients import until
from tests.interop.rocketmq import JAVA_OPTIONS, home_options, java_program
from tests.support.documents import TOP, blocks_of
from tests.support.time_limits import WAIT_SECONDS_MAX

pytestmark = pytest.mark.xdist_group("apache_v2")
DOCUMENT = TOP / "docs" / "clients.md"
ENDPOINT = "127.0.0.1:8081"
IMPORTS = ["java.nio.charset.StandardCharsets", "java.time.Duration", "java.util.List"]
IMPORTS += ["java.util.Map", "org.apache.rocketmq.client.apis.*"]
IMPORTS += [
    f"org.apache.rocketmq.client.apis.{each}.*" for each in ("consumer", "message", "producer")
]
# The delivery time is 30 seconds after the send, and open transactions are checked each 30 seconds.
# What has been pushed and not yet acknowledged stays invisible for 60 seconds.
CLOCK_SECONDS = 31
PUSHED = ["orders sync", "orders async", "steps first", "steps second", "reminders delayed"]
RECEIVED = ["payments committed", "payments orphan"]


def program(language: str) -> str:
    """Returns the document's program with the SDK of a language."""
    found = list(blocks_of(DOCUMENT, DOCUMENT.read_text("utf-8")))
    name = Path(__file__).name
    [text] = [each.text for each in found if each.language == language and name in each.reason]
    assert ENDPOINT in text
    return text


def topics() -> dict[str, str]:
    """Returns the message types of the document's topics."""
    text = DOCUMENT.read_text("utf-8")
    return dict(re.findall(r"^rocketpy topic create (\w+) .*=(\w+)$", text, re.MULTILINE))


def command(language: str, text: str, folder: Path) -> list[str]:
    """Returns the command that runs a program."""
    if language == PYTHON:
        source = folder / "program.py"
        source.write_text(text, "utf-8")
        return [str(PYTHON_SDK), str(source)]
    source = folder / "Program.java"
    imports = "".join(f"import {each};\n" for each in IMPORTS)
    main = "public static void main(String[] arguments) throws Exception {\n"
    source.write_text(f"{imports}class Program {{ {main}{text}}} }}\n", "utf-8")
    path = ["-cp", f"{JAVA_SDK / 'lib'}/*"]
    return [java_program(), *home_options(folder), *JAVA_OPTIONS, *path, str(source)]


@contextmanager
def running(words: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Yields a program whose output goes to files of the folder."""
    environment = {**os.environ, "HOME": str(folder)}
    for name in ("JDK_JAVA_OPTIONS", "PYTHONPATH"):
        environment.pop(name, None)
    output, errors = folder / "output.txt", folder / "errors.txt"
    with (
        output.open("wb") as out,
        errors.open("wb") as err,
        subprocess.Popen(words, stdin=PIPE, stdout=out, stderr=err, env=environment) as started,
    ):
        try:
            yield started
        finally:
            started.kill()


@pytest.mark.parametrize("language", [PYTHON, JAVA])
def test_the_documented_program_runs(language: str, tmp_path: Path) -> None:
    with LocalBroker() as broker:
        for topic, kind in topics().items():
            broker.create_topic(topic, attributes={"message.type": kind})
        words = command(language, program(language).replace(ENDPOINT, broker.endpoint), tmp_path)
        with running(words, tmp_path) as started:

            def printed() -> list[str]:
                assert started.poll() is None, (tmp_path / "errors.txt").read_text("utf-8")
                return (tmp_path / "output.txt").read_text("utf-8").splitlines()

            # One has ended; the other has no one that ends it.
            until(lambda: len(broker.messages("payments")) == len(broker.transactions()) == 1)
            until(lambda: f"simple {RECEIVED[0]}" in printed(), printed)
            broker.advance_clock(CLOCK_SECONDS)
            wanted = [f"push {each}" for each in PUSHED] + [f"simple {each}" for each in RECEIVED]
            until(lambda: {*printed()} >= {*wanted}, printed)
            assert Counter(printed()) == Counter(wanted)
            assert started.stdin is not None
            started.stdin.write(b"\n")
            started.stdin.close()
            assert started.wait(WAIT_SECONDS_MAX) == 0
        assert broker.transactions() == []

"""`rocketpy console`: the address of the console, and the browser that it opens."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.server.bind_address import console_url
from tests.broker.cli.broker.test_network_options import broker
from tests.support.broker.shell import ended, environment
from tests.support.time_limits import WAIT_SECONDS_MAX


def console(*options: str, **variables: str) -> CompletedProcess[str]:
    """Runs the command to its end."""
    return ended("console", *options, env=environment(**variables))


def test_the_command_prints_the_address_and_opens_it(tmp_path: Path) -> None:
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o755)
    with LocalBroker(http_port=0) as local:
        done = console("--endpoint", local.endpoint, BROWSER=str(browser))
        assert (done.returncode, done.stdout) == (0, f"{local.console_url}\n"), done.stderr
        assert opened.read_text() == done.stdout
        opened.unlink()
        done = console("--endpoint", local.endpoint, "--no-browser", BROWSER=str(browser))
        assert (done.returncode, done.stdout) == (0, f"{local.console_url}\n"), done.stderr
        assert not opened.exists()
        with urllib.request.urlopen(local.console_url, timeout=WAIT_SECONDS_MAX) as page:
            assert page.headers["Content-Type"] == "text/html; charset=utf-8"


def test_a_machine_without_a_browser_gets_the_address_alone() -> None:
    with LocalBroker(http_port=0) as local:
        done = console("--endpoint", local.endpoint, BROWSER="false")
        assert (done.returncode, done.stdout) == (0, f"{local.console_url}\n")
        assert "open the address yourself" in done.stderr


def test_a_broker_without_a_console_is_an_error() -> None:
    with LocalBroker() as local:
        done = console("--endpoint", local.endpoint)
    assert (done.returncode, done.stdout) == (1, "")
    assert "the broker has no console; start it with --http-port" in done.stderr


@pytest.mark.parametrize("mode", ["off", "read-only"])
def test_a_broker_has_the_console_of_its_option(mode: str) -> None:
    with broker("--port", "0", "--console", mode) as ports:
        root = f"http://127.0.0.1:{ports['http']}"
        endpoint = f"127.0.0.1:{ports['port']}"
        with urllib.request.urlopen(f"{root}/healthz", timeout=WAIT_SECONDS_MAX) as health:
            assert health.status == 200
        if mode == "off":
            assert ports["console"] is None
            assert console("--endpoint", endpoint).returncode == 1
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(root, timeout=WAIT_SECONDS_MAX)
        else:
            assert console("--endpoint", endpoint, "--no-browser").stdout == f"{root}/\n"
            with urllib.request.urlopen(root, timeout=WAIT_SECONDS_MAX) as page:
                assert b"This console only reads." in page.read()


@pytest.mark.parametrize(
    ("host", "is_tls", "url"),
    [
        ("127.0.0.1", False, "http://127.0.0.1:5557/"),
        ("0.0.0.0", False, "http://127.0.0.1:5557/"),
        ("[::]", False, "http://[::1]:5557/"),
        ("::1", True, "https://[::1]:5557/"),
        ("broker.example", True, "https://broker.example:5557/"),
    ],
)
def test_the_address_is_one_that_a_browser_can_open(host: str, is_tls: bool, url: str) -> None:
    assert console_url(host, 5557, is_tls=is_tls) == url

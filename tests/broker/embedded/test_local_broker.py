"""The broker as a process: ready line, signals, crash, second broker."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.embedded.local_broker import LocalBrokerError
from rocketpy_proto.rocketpy.v1 import broker_pb2, broker_pb2_grpc
from tests.support.blocks import bodies_of, wire_block
from tests.support.broker.shell import ended, started
from tests.support.time_limits import WAIT_SECONDS_MAX


def append(broker: LocalBroker, topic: str, *bodies: bytes) -> broker_pb2.AppendResponse:
    """Appends one block to queue 0 and waits for its acknowledgement."""
    block = wire_block(topic, bodies)
    request = broker_pb2.AppendRequest(
        topic=topic, records=block.records, record_sizes=block.record_sizes
    )
    with grpc.insecure_channel(broker.endpoint) as channel:
        response: broker_pb2.AppendResponse
        [response] = broker_pb2_grpc.BrokerStub(channel).Append(
            iter([request]), timeout=WAIT_SECONDS_MAX
        )
    assert response.status.code == 0, response.status.remark
    return response


def pull(broker: LocalBroker, topic: str) -> list[bytes]:
    """Returns the body of every message of queue 0."""
    bodies: list[bytes] = []
    with grpc.insecure_channel(broker.endpoint) as channel:
        request = broker_pb2.PullRequest(topic=topic)
        for response in broker_pb2_grpc.BrokerStub(channel).Pull(request, timeout=WAIT_SECONDS_MAX):
            bodies += bodies_of(response.records, response.record_sizes)
    return bodies


@pytest.mark.usefixtures("started_brokers")
def test_a_killed_broker_has_every_acknowledged_message_after_restart(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "store") as broker:
        broker.create_topic("T", queues=1)
        for number in range(20):
            append(broker, "T", b"%d" % number)
        broker.kill()
        broker.restart()
        assert "after a crash" in broker.log_text()
        assert pull(broker, "T") == [b"%d" % number for number in range(20)]


def test_a_restarted_broker_keeps_its_endpoint(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "store") as broker:
        endpoint = broker.endpoint
        broker.restart()
        assert broker.endpoint == endpoint


def test_the_port_of_a_killed_broker_is_given_to_no_other_program(tmp_path: Path) -> None:
    broker = LocalBroker(tmp_path / "store", http_port=0)
    with broker:
        broker.kill()
        for endpoint in (broker.endpoint, broker.http_endpoint):
            host, _, port = endpoint.rpartition(":")
            with socket.socket() as other, pytest.raises(OSError, match="already in use"):
                other.bind((host, int(port)))
        broker.start()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((host, int(port)))


@pytest.mark.usefixtures("started_brokers")
def test_f12_a_second_broker_on_the_directory_says_so(tmp_path: Path) -> None:
    with (
        LocalBroker(tmp_path / "store"),
        pytest.raises(LocalBrokerError, match="in use by another broker"),
    ):
        LocalBroker(tmp_path / "store").start()


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LocalBrokerError, match=f"127.0.0.1:{port}"):
            LocalBroker(tmp_path / "store", port=port).start()


@pytest.mark.usefixtures("started_brokers")
def test_a_temporary_store_goes_with_its_broker() -> None:
    with LocalBroker() as broker:
        data = broker.data
        assert data.exists()
    assert not data.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_command_cleanly_after_one_ready_line(
    tmp_path: Path, number: signal.Signals
) -> None:
    command = ["broker", "--data", str(tmp_path), "--port", "0"]
    with ExitStack() as stack:
        process = stack.enter_context(started(*command, stdout=subprocess.PIPE))
        # A failure leaves no process for which the test would wait.
        stack.callback(process.kill)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert re.fullmatch(
            r"rocketpy broker ready on 127\.0\.0\.1:\d+ data=\S+ flush=SYNC_FLUSH "
            r"remoting=127\.0\.0\.1:\d+ name_server=127\.0\.0\.1:\d+ "
            r"http=127\.0\.0\.1:\d+ console=http://127\.0\.0\.1:\d+/\n",
            line,
        )
        process.send_signal(number)
        rest, _ = process.communicate(timeout=WAIT_SECONDS_MAX)
    assert process.returncode == 0
    assert rest == "rocketpy broker stopped\n"
    assert not (tmp_path / "abort").exists()


def test_an_unwritable_directory_is_named() -> None:
    done = ended("broker", "--data", "/proc/none", "--port", "0")
    assert done.returncode == 1
    assert "/proc/none" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_plugin_offers_a_broker_for_the_session(rocketpy_broker: LocalBroker) -> None:
    rocketpy_broker.create_topic("from-the-fixture")
    with pytest.raises(LocalBrokerError, match="exists already"):
        rocketpy_broker.create_topic("from-the-fixture")


def test_a_broker_ends_with_the_program_that_started_it(tmp_path: Path) -> None:
    program = (
        "import sys; from rocketpy_broker import LocalBroker\n"
        "broker = LocalBroker(sys.argv[1]).start()\n"
        "print(broker.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "store")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        handle = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
        ended, _, _ = select.select([handle], [], [], WAIT_SECONDS_MAX)
        os.close(handle)
    assert ended
    assert not (tmp_path / "store" / "abort").exists()

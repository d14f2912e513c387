"""The image of the broker: built, started, asked for its health, used, stopped, started again."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from rocketpy_proto.rocketpy.v1 import broker_pb2, broker_pb2_grpc
from tests.blocks import wire_block
from tests.docker.builds import Builder, Container, Image
from tests.patience import PATIENCE_SECONDS

pytestmark = [pytest.mark.xdist_group("docker"), pytest.mark.timeout(240)]

# Small files, and no look at how full the test's disk is.
SMALL = ("--commit-log-segment-bytes", str(1 << 20), "--disk-full-ratio", "1")


@pytest.fixture(scope="session")
def image(builder: Builder) -> Image:
    return builder.build("broker")


@pytest.fixture
def broker(image: Image) -> Iterator[Container]:
    with Container(image, *SMALL) as container:
        container.wait_until_healthy()
        yield container


def orders(container: Container, *words: str) -> str:
    """What `rocketpy` says inside the container."""
    done = container.run("rocketpy", *words, "--endpoint", "127.0.0.1:8081")
    assert done.returncode == 0, done.stderr
    return done.stdout


def stores_in(image: Image) -> set[Path]:
    return {path.parent for path in image.root.rglob("commitlog")}


def append(container: Container, topic: str, *bodies: bytes) -> broker_pb2.AppendResponse:
    block = wire_block(topic, bodies)
    request = broker_pb2.AppendRequest(
        topic=topic, queue_id=0, records=block.records, record_sizes=block.record_sizes
    )
    with grpc.insecure_channel(f"127.0.0.1:{container.port}") as channel:
        stub = broker_pb2_grpc.BrokerStub(channel)
        responses: list[broker_pb2.AppendResponse] = list(
            stub.Append(iter([request]), timeout=PATIENCE_SECONDS)
        )
    assert not responses[0].status.code, responses[0].status.remark
    return responses[0]


def pulled(container: Container, topic: str) -> bytes:
    with grpc.insecure_channel(f"127.0.0.1:{container.port}") as channel:
        stub = broker_pb2_grpc.BrokerStub(channel)
        request = broker_pb2.PullRequest(topic=topic, queue_id=0, offset_end=2)
        return b"".join(
            response.records for response in stub.Pull(request, timeout=PATIENCE_SECONDS)
        )


def test_a_message_outlives_the_container(image: Image) -> None:
    with Container(image, *SMALL) as first:
        first.wait_until_healthy()
        assert "created topic orders" in orders(first, "topic", "create", "orders", "--queues", "1")
        append(first, "orders", b"kept by the volume", b"and this one")
        assert first.stop() == 0
        assert first.log.splitlines()[-1] == "rocketpy broker stopped"
    with Container(image, *SMALL) as second:
        second.wait_until_healthy()
        assert "orders" in orders(second, "topic", "list")
        records = pulled(second, "orders")
        assert b"kept by the volume" in records
        assert b"and this one" in records
        assert "recovered after a crash" not in second.log
        assert second.stop() == 0


def test_the_store_lies_in_the_volume_and_nowhere_else(image: Image) -> None:
    """Other tests run programs in the same image, and their stores are not this broker's."""
    (volume,) = image.stage.last("VOLUME").words
    stores_before = stores_in(image)
    with Container(image, *SMALL) as container:
        container.wait_until_healthy()
        volume_store = image.root / volume[1:]
        assert volume_store in stores_in(image)
        assert stores_in(image) - stores_before <= {volume_store}


def test_it_is_reached_by_other_addresses_than_loopback_s_first(broker: Container) -> None:
    """What listens on 127.0.0.1 alone, a published port does not reach."""
    with socket.create_connection(("127.0.0.2", broker.port), timeout=PATIENCE_SECONDS):
        pass


def test_a_message_is_found_by_the_id_that_it_was_given(broker: Container) -> None:
    orders(broker, "topic", "create", "ids", "--queues", "1")
    offset = append(broker, "ids", b"by its id").physical_offset
    # RocketMQ's form: the store host's address and port, and the offset in the log.
    offset_msg_id = f"7F000001{broker.port:08X}{offset:016X}"
    assert "by its id" in orders(broker, "message", "view", offset_msg_id)


def test_a_broker_that_stops_is_no_longer_healthy(image: Image) -> None:
    with Container(image, *SMALL) as container:
        container.wait_until_healthy()
        container.process.kill()
        container.process.wait()
        assert not container.check_health()


def test_a_missing_extra_would_show(image: Image) -> None:
    """The environment is clean: it has what the Dockerfile installs, not what tests have."""
    names = {path.name.partition("-")[0] for path in image.site_packages.glob("*.dist-info")}
    assert {"pyspark_rocketpy", "grpcio", "typer", "lark"} <= names
    assert not {"pytest", "pyspark", "jupyterlab", "ruff"} & names


def test_the_user_owns_the_volume_and_is_not_root(image: Image) -> None:
    (volume,) = image.stage.last("VOLUME").words
    assert image.user == image.owners[volume] == image.owners[image.environment["HOME"]]
    uid, _, gid = image.user.partition(":")
    accounts = (image.root / "etc/passwd").read_text(encoding="utf-8")
    assert f":x:{uid}:{gid}:" in accounts
    assert int(uid) >= 1000

"""H01: `rocketpy store align` cuts what a slave has beyond its master, and keeps a copy."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from rocketpy_broker.config import TlsMode
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.codes import RequestCode, ResponseCode
from rocketpy_proto.remoting import RemotingCommand
from tests.broker.replication.pair import MASTER, pair, slave_config, state_of, until
from tests.broker.replication.slave import log_of
from tests.support.broker.clients.remoting_relay import relayed
from tests.support.broker.clients.users import SECRETS, USERS, users_path, write_users
from tests.support.broker.running_broker import RunningBroker, StartBroker
from tests.support.broker.shell import ended
from tests.support.broker.tls_files import TlsFiles

SEGMENT = 64 << 10
SIZES = {"commit_log_segment_bytes": SEGMENT}
QUEUE = QueueKey("T", 0)


async def align(
    folder: Path, master: RunningBroker, *options: str, **environment: str
) -> tuple[int, str]:
    """Runs the command; returns its exit code and output."""
    address = f"127.0.0.1:{master.ready.remoting_port}"
    words = ["store", "align", str(folder), "--master", address, *options]
    env = {**os.environ, **environment}
    done = await asyncio.to_thread(ended, *words, env=env)
    return done.returncode, done.stdout + done.stderr


def contents(paths: list[str]) -> bytes:
    return b"".join(Path(path).read_bytes() for path in paths)


async def send(running: RunningBroker, count: int, body: bytes) -> None:
    for _ in range(count):
        assert (await running.append("T", 0, body)).status.code == 0


async def parted(start_broker: StartBroker, count: int, own_count: int) -> None:
    """Leaves a slave that has `own_count` messages after `count` of its master."""
    async with pair(start_broker, commit_log_segment_bytes=SEGMENT) as both:
        await both.master.create_topic("T")
        await send(both.master, count, b"x" * 900)
        await both.same()
        await both.synced()
    async with start_broker(folder="slave", **SIZES) as alone:
        await send(alone, own_count, b"y" * 900)


@pytest.mark.parametrize("master_count", [0, 3, 200])
async def test_h01_a_slave_that_was_a_master_follows_again_after_its_alignment(
    start_broker: StartBroker, tmp_path: Path, master_count: int
) -> None:
    await parted(start_broker, 100, 150)
    async with start_broker(
        folder="master", replication=MASTER, remoting_port=0, **SIZES
    ) as master:
        await send(master, master_count, b"z" * 900)
        replication = slave_config(master)
        async with start_broker(
            folder="slave", replication=replication, clock=master.clock, remoting_port=0, **SIZES
        ) as slave:
            await until(slave.clock, lambda: "rocketpy store align" in state_of(slave).failure)
            assert slave.broker.store.range_of(QUEUE).max_offset == 250
        folder = tmp_path / "slave"
        code, text = await align(folder, master, "--dry-run")
        assert (code, "would be removed: 150 messages of T" in text) == (0, True), text
        code, text = await align(folder, master, "--json")
        assert code == 0, text
        found = json.loads(text)
        assert found["removed"] == {"T": 150}
        assert contents(found["kept"]).count(b"y" * 900) == 150
        async with start_broker(
            folder="slave", replication=replication, clock=master.clock, remoting_port=0, **SIZES
        ) as slave:
            end = master.broker.store.positions().log_end
            await until(slave.clock, lambda: slave.broker.store.positions().dispatched_end >= end)
            assert log_of(slave) == log_of(master)
            assert slave.broker.store.range_of(QUEUE).max_offset == 100 + master_count


async def test_h01_an_equal_log_is_left_as_it_is(start_broker: StartBroker, tmp_path: Path) -> None:
    await parted(start_broker, 100, 0)
    async with start_broker(
        folder="master", replication=MASTER, remoting_port=0, **SIZES
    ) as master:
        code, text = await align(tmp_path / "slave", master, "--json")
        assert (code, json.loads(text)["removed"]) == (0, {})
        assert json.loads(text)["logEnd"] == master.broker.store.positions().log_end


async def test_h01_a_master_that_fails_at_first_is_asked_again(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    await parted(start_broker, 3, 0)
    failing = [RequestCode.GET_BROKER_RUNTIME_INFO]

    def fail_once(request: RemotingCommand) -> RemotingCommand | None:
        if request.code not in failing:
            return None
        failing.clear()
        return request.answer(ResponseCode.SYSTEM_ERROR, remark="no figures yet")

    async with (
        start_broker(folder="master", replication=MASTER, remoting_port=0, **SIZES) as started,
        relayed(started, fail_once) as master,
    ):
        exit_code, text = await align(tmp_path / "slave", master, "--json")
        assert (exit_code, json.loads(text)["removed"]) == (0, {})
        assert not failing


async def test_h01_a_master_with_users_and_tls_is_reached(
    start_broker: StartBroker, tmp_path: Path, tls_files: TlsFiles
) -> None:
    await parted(start_broker, 3, 1)
    write_users(users_path(tmp_path / "master"), *USERS)
    tls = tls_files.tls(TlsMode.ENFORCING)
    async with start_broker(
        folder="master", replication=MASTER, remoting_port=0, tls=tls, **SIZES
    ) as master:
        encrypted = ("--tls", "--tls-ca", str(tls_files.authority.path))
        for options, reason in (((), "connection"), (encrypted, "the broker has users")):
            code, text = await align(tmp_path / "slave", master, *options)
            assert (code, reason in text) == (1, True), text
        keys = {"ROCKETPY_ACCESS_KEY": "admin", "ROCKETPY_SECRET_KEY": SECRETS["admin"]}
        code, text = await align(tmp_path / "slave", master, *encrypted, "--json", **keys)
        assert (code, json.loads(text)["removed"]) == (0, {"T": 1})


async def test_h01_another_store_is_refused(start_broker: StartBroker, tmp_path: Path) -> None:
    async with start_broker(folder="slave", **SIZES) as alone:
        await alone.create_topic("T")
        await send(alone, 3, b"y")
    async with start_broker(
        folder="master", replication=MASTER, remoting_port=0, **SIZES
    ) as master:
        code, text = await align(tmp_path / "slave", master)
        assert (code, "nothing in common" in text) == (1, True), text

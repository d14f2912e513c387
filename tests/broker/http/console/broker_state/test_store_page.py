"""The page of the store, and its two cleanings."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import pytest

from rocketpy_broker.config import ConsoleMode
from rocketpy_broker.runtime.time_format import ms_of_time, parsed_time
from rocketpy_broker.server.http.console.renderer import bytes_text, time_shown
from rocketpy_broker.store.cleaner import CleanPolicy
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.rocketpy.v1 import admin_pb2
from tests.broker.http.api_client import get
from tests.broker.http.console.topic_browser import Browser
from tests.broker.replication.slave import slave_of
from tests.broker.replication.test_h01_master import MASTER
from tests.support.blocks import wire_block
from tests.support.broker.clients.users import SECRETS, USERS, users_path, write_users
from tests.support.broker.running_broker import RunningBroker, StartBroker, until

SEGMENT = 64 << 10


async def fill(running: RunningBroker, segments: int) -> None:
    """Stores messages that take this number of segments."""
    await running.create_topic("orders", queues=1)
    while running.broker.store.positions().log_end < (segments - 1) * SEGMENT:
        answer = await running.append("orders", 0, bytes(20_000))
        assert answer.status.code == 0, answer.status.remark


def orphan(running: RunningBroker, topic: str) -> None:
    """Stores a message of a topic without settings."""
    running.broker.store.append(QueueKey(topic, 0), wire_block(topic, [b"x"]).parsed())


async def test_the_page_has_files_figures_and_the_last_start(running_http: RunningBroker) -> None:
    await running_http.create_topic("orders", queues=1)
    await running_http.append("orders", 0, b"a", b"b")
    page = await Browser(running_http).page("/store")
    folder = str(running_http.broker.store.config.folder.absolute())
    assert ["commit log", f"{folder}/commitlog"] in page.rows
    assert "after a clean stop. It found no damage." in page.text
    assert ["None waits. The newest segment always stays."] in page.rows
    [put] = [cells for cells in page.rows if cells[0] == "0 ms"]
    assert int(put[2]) + sum(int(cells[2]) for cells in page.rows if cells[0] == "10 ms") == 1
    assert page.link("Clean now") == "/store/clean"
    assert page.link("Clean unused topics") == "/store/unused-topics"
    assert not page.attributes & {"style", "onclick"}


async def test_expired_segments_go_after_a_page_that_counts_them(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    policy = CleanPolicy(confirm_ms=0, clean_file_forcibly_enable=False)
    async with start_broker(
        FlushDiskType.SYNC_FLUSH,
        http_port=0,
        commit_log_segment_bytes=SEGMENT,
        clean_policy=policy,
    ) as running:
        await fill(running, 2)
        browser = Browser(running)
        page = await browser.page("/store")
        assert "their messages are younger than --file-reserved-hours" in page.text
        assert "nothing is removed now" in (await browser.page("/store/clean")).text
        for path in (tmp_path / "commitlog").iterdir():
            os.utime(path, (1, 1))
        text = (await browser.page("/store/clean")).text
        assert "This removes the oldest 1 segment of the commit log, 64.0 KiB." in text
        refused = await browser.post("/store/clean", {"token": "0"})
        assert refused.error[0] == 403
        assert running.broker.store.positions().log_begin == 0
        done = await browser.done("/store/clean")
        assert "The broker has removed what it may remove." in done.text
        assert running.broker.store.positions().log_begin == SEGMENT


async def test_the_page_says_what_is_removed_and_when(start_broker: StartBroker) -> None:
    policy = CleanPolicy(
        reserved_ms=36 * 3_600_000,
        delete_when_hours=frozenset({4, 16}),
        clean_file_forcibly_enable=True,
    )
    async with start_broker(http_port=0, clean_policy=policy) as running:
        status = (await get(running, "/broker/status"))["cleaning"]
        now_ms, next_ms = running.clock.now_ms(), ms_of_time(parsed_time(status["nextTimestamp"]))
        assert 0 < next_ms - now_ms <= 12 * 3_600_000
        assert datetime.fromtimestamp(next_ms / 1000).astimezone().hour in {4, 16}
        assert (status["hours"], status["reservedMs"]) == ([4, 16], 36 * 3_600_000)
        text = (await Browser(running).page("/store")).text
        assert "keeps each message for 1 d 12 h or longer" in text
        assert "each day in the hour from 04:00 and 16:00, local time of the broker (UTC" in text
        assert f"The next such hour begins at {time_shown(status['nextTimestamp'])}." in text
        assert "in other hours while more than 75 % of the disk is used" in text
        assert "more than 85 % of the disk is used, it removes the oldest segments before" in text
        assert "more than 90 % of the disk is used, it refuses messages" in text
        assert "No segment can be removed now." in text


async def test_slaves_are_listed(start_broker: StartBroker) -> None:
    async with start_broker(http_port=0, replication=MASTER) as running:
        browser = Browser(running)
        assert "No slave is connected." in (await browser.page("/store")).text
        await running.create_topic("orders", queues=1)
        await running.append("orders", 0, b"x" * 2_000)
        async with slave_of(running, 0) as slave:
            await until(lambda: len(running.broker.services.replication.slaves.slaves) == 1)
            end = running.broker.store.positions().log_end
            page = await browser.page("/store")
            [row] = [cells for cells in page.rows if cells[0].startswith("127.0.0.1:")]
            assert row[1:4] == ["yes", bytes_text(end), "0"]
            assert "The role of this broker is ASYNC_MASTER." in page.text
            await slave.read_until(end)
            slave.report(end)
            slaves = running.broker.services.replication.slaves
            await until(lambda: slaves.slaves[0].acknowledged == end)
            page = await browser.page("/store")
            [row] = [cells for cells in page.rows if cells[0].startswith("127.0.0.1:")]
            assert row[1:4] == ["yes", "0 B", f"{end:,}"]


async def test_unused_topics_go_after_a_page_that_names_them(running_http: RunningBroker) -> None:
    await running_http.create_topic("orders", queues=1)
    await running_http.append("orders", 0, b"a")
    browser, store = Browser(running_http), running_http.broker.store
    assert "nothing is removed now" in (await browser.page("/store/unused-topics")).text
    orphan(running_http, "Orphan")
    page = await browser.page("/store/unused-topics")
    assert "This removes the queues of 1 topic without settings." in page.text
    assert "Orphan" in page.texts["li"]
    assert {queue.topic for queue in store.queues()} == {"orders", "Orphan"}
    await browser.done("/store/unused-topics")
    assert {queue.topic for queue in store.queues()} == {"orders"}


async def test_a_dry_run_names_topics_and_removes_nothing(running: RunningBroker) -> None:
    orphan(running, "Orphan")
    request = admin_pb2.CleanUnusedTopicsRequest(dry_run=True)
    for _ in range(2):
        assert [*(await running.admin.CleanUnusedTopics(request)).topics] == ["Orphan"]


async def test_a_console_that_only_reads_has_no_cleaning(start_broker: StartBroker) -> None:
    async with start_broker(http_port=0, console=ConsoleMode.READ_ONLY) as running:
        browser = Browser(running)
        page = await browser.page("/store")
        assert "Clean now" not in page.text
        for path in ("/store/clean", "/store/unused-topics"):
            assert (await browser.get(path)).status == 404
            assert (await browser.post(path, {})).status in {404, 405}


@pytest.mark.parametrize("path", ["/store/clean", "/store/unused-topics"])
async def test_only_an_admin_cleans(start_broker: StartBroker, tmp_path: Path, path: str) -> None:
    write_users(users_path(tmp_path), *USERS)
    async with start_broker(http_port=0) as running:
        orphan(running, "Orphan")
        browser = Browser(running, ("monitor", SECRETS["monitor"]))
        form = await browser.page("/store/clean")
        refused = await browser.post(path, form.fields)
        assert refused.error[0] == 403
        assert {queue.topic for queue in running.broker.store.queues()} == {"Orphan"}

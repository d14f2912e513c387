"""Resets of groups in the console: the preview, and the change."""

from __future__ import annotations

import pytest

from rocketpy_proto.rocketpy.v1 import groups_pb2
from tests.broker.http.console.test_groups import commit, fill
from tests.broker.http.console.topic_browser import Browser
from tests.support.broker.clients.group_clients import consumer, heartbeat
from tests.support.broker.running_broker import RunningBroker

RESET = "/groups/billing/reset"


async def offsets(running: RunningBroker) -> list[int]:
    """Returns the group's offsets in the topic's queues; -1 without progress."""
    request = groups_pb2.ResetOffsetsRequest(
        consumer_group="billing", topic="orders", earliest=True, dry_run=True
    )
    answer: groups_pb2.ResetOffsetsResponse = await running.groups.ResetOffsets(request)
    return [each.old_offset for each in answer.offsets]


@pytest.mark.parametrize(
    ("query", "rows", "figures", "after"),
    [
        ("to=earliest", [["0", "2", "0", "2 read again"]], "2 Messages skipped 0", [0, 0]),
        (
            "to=latest",
            [["0", "2", "3", "1 skipped"], ["1", "no progress", "1", "1 skipped"]],
            "0 Messages skipped 2",
            [3, 1],
        ),
        ("to=offset&offset=1&queue=0", [["0", "2", "1", "1 read again"]], "1 Messages", [1, -1]),
        (
            "to=time&time=2038-01-01T00:00:00&queue=0",
            [["0", "2", "3", "1 skipped"]],
            "0 Messages skipped 1",
            [3, -1],
        ),
        (
            "to=time&time=1990-01-01T00:00:00&queue=0",
            [["0", "2", "0", "2 read again"]],
            "2 Mess",
            [0, -1],
        ),
    ],
)
async def test_a_reset_shows_what_it_will_do_and_then_does_it(
    running_http: RunningBroker, query: str, rows: list[list[str]], figures: str, after: list[int]
) -> None:
    running, browser = running_http, Browser(running_http)
    await fill(running)
    await commit(running, "billing", "orders", 2)
    path = f"{RESET}?topic=orders&{query}"
    page = await browser.page(path)
    shown = [row for row in page.rows if row[0].isdecimal()]
    assert [row for row in shown if row[3] != "no message"] == rows
    assert f"Messages read again {figures}" in page.text
    assert await offsets(running) == [2, -1]
    done = await browser.done(path)
    assert "The group's offsets are reset." in done.text
    assert await offsets(running) == after


async def test_a_reset_of_a_group_with_members_needs_force(running_http: RunningBroker) -> None:
    running, browser = running_http, Browser(running_http)
    await fill(running)
    await commit(running, "billing", "orders", 2)
    await heartbeat(running, "c-1", consumer("billing", "orders"))
    path = f"{RESET}?topic=orders&to=latest"
    page = await browser.page(path)
    assert "The group has 1 member online." in page.text
    status, text = (await browser.submit(path)).error
    assert status == 409
    assert "online" in text
    assert await offsets(running) == [2, -1]
    await browser.done(path, force="on")
    assert await offsets(running) == [3, 1]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("topic=missing&to=latest", 404),
        ("topic=&to=latest", 400),
        ("topic=orders&to=tomorrow", 400),
        ("topic=orders&to=offset&offset=9", 400),
        ("topic=orders&to=offset&offset=-1", 400),
        ("topic=orders&to=offset", 400),
        ("topic=orders&to=time&time=noon", 400),
        ("topic=orders&to=time&time=", 400),
        ("topic=orders&to=latest&queue=7", 400),
        ("topic=orders&to=latest&queue=x", 400),
        ("topic=%3Cscript%3E&to=latest", 404),
    ],
)
async def test_a_wrong_reset_changes_nothing(
    running_http: RunningBroker, query: str, status: int
) -> None:
    running, browser = running_http, Browser(running_http)
    await fill(running)
    await commit(running, "billing", "orders", 2)
    assert (await browser.get(f"{RESET}?{query}")).error[0] == status
    fields = dict(pair.split("=") for pair in query.split("&"))
    token = (await browser.page(f"{RESET}?topic=orders&to=latest")).fields["token"]
    seen = await browser.post(RESET, {**fields, "token": token})
    assert seen.status in {400, 404}
    assert await offsets(running) == [2, -1]


async def test_a_reset_of_many_queues_shows_some(running_http: RunningBroker) -> None:
    running, browser = running_http, Browser(running_http)
    await running.create_topic("orders", queues=1_000)
    await commit(running, "billing", "orders", 0)
    page = await browser.page(f"{RESET}?topic=orders&to=latest")
    assert "100 of 999 queues are shown." in page.text
    await browser.done(f"{RESET}?topic=orders&to=latest")
    assert await offsets(running) == [0] * 1_000

"""Clients and open transactions in the console."""

from __future__ import annotations

from tests.broker.http.console.topic_browser import Browser
from tests.support.broker.clients.group_clients import consumer, heartbeat
from tests.support.broker.running_broker import RunningBroker
from tests.support.broker.transactions import prepare

HOSTILE = '"><img src=x onerror=alert(1)>'


async def test_clients_are_paged_with_their_groups(running_http: RunningBroker) -> None:
    running, browser = running_http, Browser(running_http)
    assert "No client." in (await browser.page("/clients")).text
    for number in range(101):
        await heartbeat(running, f"c-{number:03}", consumer("billing", "orders"), producers=["p"])
    page = await browser.page("/clients")
    [row] = [row for row in page.rows if row[0] == "c-000"]
    assert row[1] == "billing, p (producer)"
    assert "c-100" not in page.text
    assert "c-100" in (await browser.page(page.link("Next page"))).text
    many = [consumer(f"g-{number:02}", "orders") for number in range(30)]
    await heartbeat(running, "a-many", *many)
    [row] = [row for row in (await browser.page("/clients")).rows if row[0] == "a-many"]
    assert row[1].endswith("g-09 and 20 more")
    assert (await browser.get("/clients?after=%00")).error[0] == 400


async def test_open_transactions_are_shown_the_oldest_first(running_http: RunningBroker) -> None:
    running, browser = running_http, Browser(running_http)
    assert "No open transaction." in (await browser.page("/transactions")).text
    await running.create_topic("T")
    await prepare(running, HOSTILE)
    running.clock.advance(3_000)
    await prepare(running, "second")
    page = await browser.page("/transactions")
    rows = [row for row in page.rows if len(row) == 6 and row[1] == "producers"]
    assert [row[0] for row in rows] == [HOSTILE, "second"]
    assert rows[1][2] == "T"
    assert "img" not in page.tags
    assert "/topics/RMQ_SYS_TRANS_HALF_TOPIC/queues/0/messages/1" in dict(page.links)
    assert "No open" in (await browser.page("/transactions?group=others")).text
    assert "second" in (await browser.page("/transactions?group=producers")).text


async def test_a_long_id_of_a_transaction_is_cut(running_http: RunningBroker) -> None:
    await running_http.create_topic("T")
    await prepare(running_http, "<" * 15_000)
    seen = await Browser(running_http).get("/transactions")
    assert len(seen.body) < 10_000
    assert "/topics/RMQ_SYS_TRANS_HALF_TOPIC/queues/0/messages/0" in dict(seen.page.links)

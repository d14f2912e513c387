"""Messages that wait for a delay level."""

from __future__ import annotations

from rocketpy_broker.runtime.time_format import time_of_ms
from rocketpy_broker.server.http.console.pages.delayed import COUNT
from rocketpy_broker.server.http.console.renderer import time_shown
from tests.broker.http.console.topic_browser import Browser, Parsed
from tests.support.blocks import wire_block
from tests.support.broker.running_broker import RunningBroker, until

LEVEL, DELAY_MS = 3, 10_000


async def delay(running: RunningBroker, *bodies: bytes) -> None:
    """Sends messages with a delay level."""
    block = wire_block("orders", list(bodies), properties={"DELAY": [str(LEVEL)] * len(bodies)})
    answer = await running.append_block("orders", 0, block)
    assert answer.status.code == 0, answer.status.remark


def bodies(page: Parsed) -> list[str]:
    return [row[6] for row in page.rows[1:] if len(row) > 6]


async def test_the_next_due_messages_of_a_level_come_first(running_http: RunningBroker) -> None:
    running, browser = running_http, Browser(running_http)
    await running.create_topic("orders", queues=1)
    sent_ms = running.clock.now_ms()
    await delay(running, b"first", b"<b>second</b>")
    running.clock.advance(2_000)
    await delay(running, b"third")
    overview = await browser.page("/")
    page = await browser.page(overview.link("Delay level 3"))
    assert "3 messages wait, 10 s each." in page.text
    assert bodies(page) == ["first", "<b>second</b>", "third"]
    dues = [row[0] for row in page.rows[1:]]
    times = (sent_ms + DELAY_MS, sent_ms + DELAY_MS, sent_ms + DELAY_MS + 2_000)
    assert dues == [time_shown(time_of_ms(each)) for each in times]
    assert page.link("orders") == "/topics/orders"
    link = next(target for target, _ in page.links if "/queues/2/messages/0" in target)
    assert "first" in (await browser.page(link)).text
    running.clock.advance(DELAY_MS - 1_500)

    async def delivered() -> bool:
        return bodies(await browser.page("/delayed/3")) == ["third"]

    while not await delivered():
        await until(lambda: True)


async def test_a_long_list_has_pages(running_http: RunningBroker) -> None:
    running, browser = running_http, Browser(running_http)
    await running.create_topic("orders", queues=1)
    await delay(running, *(f"m-{number}".encode() for number in range(COUNT + 3)))
    page = await browser.page("/delayed/3")
    assert len(bodies(page)) == COUNT
    page = await browser.page(page.link("Next page"))
    assert bodies(page) == [f"m-{number}" for number in range(COUNT, COUNT + 3)]
    assert "Next page" not in page.text
    assert bodies(await browser.page("/delayed/3?at=999999")) == []


async def test_a_level_without_messages_is_an_empty_list(running_http: RunningBroker) -> None:
    browser = Browser(running_http)
    for level in ("1", "18"):
        assert "No message waits." in (await browser.page(f"/delayed/{level}")).text
    for wrong in ("x", "-1", "99999", "%3Cb%3E"):
        assert (await browser.get(f"/delayed/{wrong}")).error[0] == 400

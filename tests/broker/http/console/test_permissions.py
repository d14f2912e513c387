"""Pages of users: they have what the user may do, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rocketpy_proto.rocketpy.v1 import broker_pb2, groups_pb2
from tests.broker.http.api_client import ask
from tests.broker.http.console.test_groups import commit
from tests.broker.http.console.topic_browser import NONE, Browser
from tests.broker.replication.slaves.own_slave import MASTER, slave
from tests.support.broker.clients.group_clients import consumer, heartbeat
from tests.support.broker.clients.users import (
    GROUP,
    OTHER,
    SECRETS,
    TOPIC,
    USERS,
    Secured,
    secured_broker,
    user,
    users_path,
    write_users,
)
from tests.support.broker.running_broker import RunningBroker, StartBroker

HIDDEN = "payments"
OWNER = user(
    "owner", topic_permissions={"mine*": "ALL"}, group_permissions={"mine": "PUB", GROUP: "SUB"}
)
SECRETS_OF = {**SECRETS, "owner": "secret-of-owner"}


@pytest.fixture
async def with_users(start_broker: StartBroker, tmp_path: Path) -> AsyncIterator[Secured]:
    """Yields a broker with users, topics, and two groups with progress."""
    write_users(users_path(tmp_path), *USERS, OWNER)
    async with secured_broker(start_broker, http_port=0) as secured:
        admin = secured.metadata("admin")
        await secured.append(TOPIC, admin)
        for group in (GROUP, HIDDEN):
            offset = broker_pb2.CommittedOffset(topic=TOPIC, queue_id=0, offset=0)
            request = broker_pb2.CommitOffsetsRequest(consumer_group=group, offsets=[offset])
            answer = await secured.running.data.CommitOffsets(request, metadata=admin)
            assert answer.status.code == 0, answer.status.remark
        yield secured


def browser_of(secured: Secured, name: str) -> Browser:
    return Browser(secured.running, (name, SECRETS_OF[name]))


async def targets(secured: Secured, name: str, path: str) -> set[str]:
    """Returns the targets of a page's links."""
    return {target for target, _ in (await browser_of(secured, name).page(path)).links}


# Places in a page, and addresses that are no pages.
OTHERS = {"", "/metrics", "/api/v1/openapi.json"}
PAGES = ("/", "/topics", f"/topics/{TOPIC}", f"/topics/{TOPIC}/messages", "/groups")


@pytest.mark.parametrize("name", ["admin", "writer", "reader", "monitor", "owner"])
async def test_no_link_leads_to_a_refusal(with_users: Secured, name: str) -> None:
    browser, seen = browser_of(with_users, name), set(PAGES)
    todo, refused = list(PAGES), []
    while todo:
        path = todo.pop()
        found = await browser.get(path)
        if found.status == 403:
            refused.append(path)
        links = {target for target, _ in found.page.links} if found.status == 200 else set()
        following = {each.partition("#")[0] for each in links} - seen - OTHERS
        seen |= following
        todo += (each for each in following if not each.startswith("/api/"))
    # The pages with which the walk begins may be refused; no page links to them then.
    assert set(refused) <= {f"/topics/{TOPIC}", f"/topics/{TOPIC}/messages"}
    for path in set(PAGES) - set(refused):
        assert not await targets(with_users, name, path) & set(refused), path


async def test_actions_are_shown_to_users_that_may_do_them(with_users: Secured) -> None:
    base, group = f"/topics/{TOPIC}", f"/groups/{GROUP}"
    changes = {f"{base}/edit", f"{base}/empty", f"{base}/delete"}
    assert await targets(with_users, "admin", base) >= {*changes, f"{base}/send", "/store"}
    assert not await targets(with_users, "reader", base) & {*changes, f"{base}/send", "/store"}
    of_writer = await targets(with_users, "writer", base)
    assert f"{base}/send" in of_writer
    assert not of_writer & {*changes, f"{base}/messages"}
    assert "/new/topic" in await targets(with_users, "admin", "/topics")
    assert "/new/topic" in await targets(with_users, "owner", "/topics")
    assert "/new/topic" not in await targets(with_users, "reader", "/topics")
    assert "/new/group" not in await targets(with_users, "owner", "/groups")
    assert f"{group}/delete" in await targets(with_users, "admin", group)
    assert not await targets(with_users, "reader", group) & {f"{group}/delete", f"{group}/edit"}
    assert "/store/clean" not in await targets(with_users, "monitor", "/store")


async def test_a_user_without_the_role_has_an_overview_of_its_own(with_users: Secured) -> None:
    page = await browser_of(with_users, "reader").page("/")
    assert page.texts["h1"] == ["broker-a"]
    assert f"Topics : {TOPIC} (SUB)" in page.text
    assert page.link(TOPIC) == f"/topics/{TOPIC}"
    assert page.link(GROUP) == f"/groups/{GROUP}"
    page = await browser_of(with_users, "owner").page("/")
    assert page.link("mine*") == "/topics?prefix=mine"
    assert "Messages in" in (await browser_of(with_users, "monitor").page("/")).text


async def test_a_writer_that_may_not_read_sees_that_its_message_is_sent(
    with_users: Secured,
) -> None:
    page = await browser_of(with_users, "writer").done(f"/topics/{TOPIC}/send", body="x")
    assert "The message is sent." in page.text


async def test_a_group_shows_its_figures_to_its_readers_and_to_monitors(
    with_users: Secured,
) -> None:
    for name, can_see in (("reader", False), ("monitor", True), ("admin", True)):
        lag = 1 if can_see else -1
        metadata = with_users.metadata(name)
        request = groups_pb2.ListGroupsRequest()
        listed = (await with_users.running.groups.ListGroups(request, metadata=metadata)).groups
        by_grpc = {each.consumer_group: (each.lag, [*each.topics]) for each in listed}
        assert by_grpc[HIDDEN] == (lag, [TOPIC] if can_see else []), name
        assert by_grpc[GROUP] == (1, [TOPIC])
        reply = await ask(with_users.running, "GET", "/groups", user=(name, SECRETS[name]))
        by_api = {each["consumerGroup"]: each for each in reply.json["groups"]}
        assert by_api[HIDDEN]["lag"] == (1 if can_see else None)
        assert by_api[HIDDEN]["members"] == (0 if can_see else None)
        page = await browser_of(with_users, name).page("/groups")
        rows = {row[0]: row[1:] for row in page.rows}
        assert rows[HIDDEN] == (["0", NONE, TOPIC, "1"] if can_see else [NONE, NONE, "", NONE])
        assert ("may not see" in page.text) is not can_see


async def test_names_of_other_topics_are_no_links(with_users: Secured) -> None:
    page = await browser_of(with_users, "reader").page("/topics")
    assert OTHER in page.text
    assert OTHER not in {text for _, text in page.links}
    assert page.link(TOPIC) == f"/topics/{TOPIC}"


async def test_a_broker_without_users_shows_all(running_http: RunningBroker) -> None:
    await running_http.create_topic("orders", queues=1)
    await commit(running_http, "billing", "orders", 0)
    page = await Browser(running_http).page("/groups")
    assert "may not see" not in page.text
    assert page.link("billing") == "/groups/billing"


async def test_a_slave_offers_nothing_that_it_refuses(start_broker: StartBroker) -> None:
    async with slave(start_broker, http_port=0) as running:
        await heartbeat(running, "c-1", consumer("billing", "orders"))
        browser, todo = Browser(running), ["/", "/topics", "/groups"]
        seen = set(todo)
        while todo:
            path = todo.pop()
            page = await browser.page(path)
            assert f"This broker is a slave: send to its master {MASTER}." in page.text
            following = {target.partition("#")[0] for target, _ in page.links} - seen - OTHERS
            seen |= following
            todo += following
        assert "/groups/billing" in seen
        assert {"/new/topic", "/new/group", "/groups/billing/edit"}.isdisjoint(seen)

"""Access to the JSON API: pages of other sites, and users with their permissions."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import pytest

from rocketpy_broker.server.http.api.cross_site import HostRule
from rocketpy_proto.model.codes import ResponseCode
from tests.broker.http.api_client import JSON_TYPE, Reply, ask, get
from tests.support.broker.clients.users import GROUP, SECRETS, TOPIC, USERS, users_path, write_users
from tests.support.broker.running_broker import RunningBroker, StartBroker

DENIED = ResponseCode.NO_PERMISSION


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Content-Type": "application/json; charset=utf-8"}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Origin": "http://broker.localhost"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        # Another port of this machine is the same site, and not the same origin.
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": ""}, 415),
    ],
)
async def test_a_page_of_another_site_acts_on_nothing(
    running_http: RunningBroker, headers: Mapping[str, str], status: int
) -> None:
    reply = await ask(running_http, "PUT", "/topics/orders", {}, {**JSON_TYPE, **headers})
    assert reply.status == status, reply
    topics = (await get(running_http, "/topics"))["configs"]
    assert [each["topic"] for each in topics] == (["orders"] if status == 200 else [])


async def test_the_brokers_own_page_may_act(running_http: RunningBroker) -> None:
    origin = f"http://127.0.0.1:{running_http.ready.http_port}"
    reply = await ask(running_http, "PUT", "/topics/a", {}, {**JSON_TYPE, "Origin": origin})
    assert reply.status == 200


async def test_a_page_of_another_site_reads_nothing(running_http: RunningBroker) -> None:
    for headers in ({"Host": "evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        reply = await ask(running_http, "GET", "/topics", None, headers)
        assert reply.error == (403, DENIED)
    reply = await ask(running_http, "GET", "/topics")
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert reply.headers["Cache-Control"] == "no-store"
    assert not [name for name in reply.headers if name.startswith("Access-Control")]


@pytest.mark.parametrize(
    ("host", "is_local", "is_public"),
    [
        ("127.0.0.1", True, True),
        ("127.0.0.1:5557", True, True),
        ("LOCALHOST:5557", True, True),
        ("[::1]:5557", True, True),
        ("[::1", False, False),
        ("10.0.0.7:5557", False, True),
        ("[fd00::7]:5557", False, True),
        ("broker:5557", False, True),
        ("Broker.example:5557", False, True),
        ("localhost.evil.example", False, False),
        ("10.0.0.7.evil.example", False, False),
        ("evil.example", False, False),
    ],
)
def test_a_name_that_a_page_can_give_the_brokers_address_is_refused(
    host: str, *, is_local: bool, is_public: bool
) -> None:
    names = frozenset({"broker.example"})
    assert HostRule(True, names, lambda: False).allows(host) is is_local
    assert HostRule(False, names, lambda: False).allows(host) is is_public


async def test_a_broker_for_other_machines_answers_by_its_own_names(
    start_broker: StartBroker,
) -> None:
    options = {"host": "0.0.0.0", "insecure": True, "advertise_host": "Broker.example"}
    async with start_broker(http_port=0, **options) as running:
        for host, status in (("broker.example", 200), ("broker:5557", 200), ("evil.example", 403)):
            assert (await ask(running, "GET", "/topics", None, {"Host": host})).status == status
            # Prometheus scrapes by the name of a service of compose, or by an address.
            assert await status_of(running, "/metrics", host) == status
            # A supervisor may ask by any name.
            assert await status_of(running, "/healthz", host) == 200
        assert await status_of(running, "/metrics", "10.0.0.7:5557") == 200


async def test_metrics_are_not_read_under_a_name_of_another_site(
    running_http: RunningBroker,
) -> None:
    for host, status in (("localhost:5557", 200), ("127.0.0.1", 200), ("evil.example", 403)):
        assert await status_of(running_http, "/metrics", host) == status


async def status_of(running: RunningBroker, path: str, host: str) -> int:
    """Returns the status of an answer under a name of the broker."""
    url = f"http://127.0.0.1:{running.ready.http_port}{path}"
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers={"Host": host}) as response,
    ):
        return response.status


async def test_a_broker_with_users_answers_by_any_name(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    write_users(users_path(tmp_path), *USERS)
    async with start_broker(http_port=0, host="0.0.0.0") as running:
        user = "admin", SECRETS["admin"]
        reply = await ask(running, "GET", "/topics", None, {"Host": "proxy.example"}, user)
    assert reply.status == 200


async def test_users_do_what_their_permissions_allow(
    start_broker: StartBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_users(users_path(tmp_path), *USERS)
    async with start_broker(http_port=0) as running:

        async def ask_as(name: str, method: str, path: str, body: object = None) -> Reply:
            return await ask(running, method, path, body, user=(name, SECRETS[name]))

        caplog.set_level(logging.INFO, "rocketpy_broker.audit")
        assert (await ask_as("admin", "PUT", f"/topics/{TOPIC}", {})).status == 200
        lines = [each.getMessage() for each in caplog.records if " requested " in each.getMessage()]
        assert any(
            line.startswith("user admin requested rocketpy.v1.Admin/UpdateTopic ")
            and "UpdateTopic of topic 'orders-eu' from http:127.0.0.1:" in line
            for line in lines
        )
        messages = f"/topics/{TOPIC}/messages"
        assert (await ask_as("writer", "POST", messages, {"body": "x"})).status == 200
        refused = await ask_as("reader", "POST", messages, {"body": "y"})
        assert refused.error == (403, DENIED)
        assert "lacks the permission PUB" in refused.json["message"]
        queue_messages = f"/topics/{TOPIC}/queues/0/messages"
        stored = [
            (await ask_as("reader", "GET", f"/topics/{TOPIC}/queues/{number}/messages")).json
            for number in range(8)
        ]
        [message] = [each for page in stored for each in page["messages"]]
        assert (await ask_as("writer", "GET", queue_messages)).error == (403, DENIED)
        by_id = f"/messages/{message['offsetMsgId']}"
        assert (await ask_as("reader", "GET", by_id)).json == message
        assert (await ask_as("writer", "GET", by_id)).error == (403, DENIED)
        assert (await ask_as("reader", "GET", f"/groups/{GROUP}/dead-letters")).status == 404
        assert (await ask_as("writer", "GET", f"/groups/{GROUP}/dead-letters")).status == 403
        assert (await ask_as("reader", "GET", "/clients")).error == (403, DENIED)
        assert (await ask_as("monitor", "GET", "/clients")).status == 200
        assert (await ask_as("monitor", "DELETE", f"/topics/{TOPIC}")).error == (403, DENIED)
        assert (await ask_as("monitor", "POST", "/clean/expired-files")).error == (403, DENIED)
        assert (await ask_as("admin", "POST", "/clean/expired-files")).status == 200


async def test_a_request_without_a_user_or_with_a_wrong_key_is_refused(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    write_users(users_path(tmp_path), *USERS)
    async with start_broker(http_port=0) as running:
        for user in (None, ("admin", "wrong"), ("nobody", "wrong")):
            reply = await ask(running, "GET", "/topics", user=user)
            assert reply.error == (401, ResponseCode.UNAUTHENTICATED)
            assert reply.headers["WWW-Authenticate"] == 'Basic realm="rocketpy"'
        bearer = await ask(running, "GET", "/topics", headers={"Authorization": "Bearer x.1.y"})
        assert bearer.status == 401
        assert (await ask(running, "GET", "/openapi.json")).status == 200

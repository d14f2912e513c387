"""Requests without a valid signature: refused with the declared code, and nothing has changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from rocketpy_broker.server.security import credentials
from rocketpy_broker.server.security.credentials import (
    basic_credentials,
    bearer_credentials,
    mqv2_credentials,
    remoting_credentials,
)
from rocketpy_proto.bearer_token import LIFE_MS_MAX, TokenSource, bearer_token
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.remoting import RemotingCommand, signed
from rocketpy_proto.remoting.headers.cluster import PutKVConfigRequest
from rocketpy_proto.remoting.headers.sends import SendMessageRequest
from rocketpy_proto.remoting.headers.topics import GetRouteInfoRequest
from rocketpy_proto.remoting.signature import signature
from rocketpy_proto.rocketpy.v1 import admin_pb2
from tests.support.broker.clients.remoting_client import connected
from tests.support.broker.clients.users import (
    MINUTE_MS,
    SECRETS,
    TOPIC,
    USERS,
    Secured,
    bearer,
    secured_broker,
    user,
    users_path,
    write_users,
)
from tests.support.broker.running_broker import StartBroker

WRONG = "another-secret-key"
HEADER = SendMessageRequest("producers", TOPIC, 0, 1_700_000_000_000)


def token(secured: Secured, access_key: str, secret_key: str, life_ms: int = MINUTE_MS) -> object:
    return bearer(bearer_token(access_key, secret_key, secured.running.clock.now_ms() + life_ms))


TOKENS: dict[str, Callable[[Secured], object]] = {
    "none": lambda _: None,
    "empty": lambda _: bearer(""),
    "another scheme": lambda _: [("authorization", "Basic YTpi")],
    "no base64": lambda _: bearer("*.1.*"),
    "no time": lambda _: bearer("YQ.x.YQ"),
    "wrong": lambda s: token(s, "writer", WRONG),
    "unknown user": lambda s: token(s, "stranger", WRONG),
    "another user's": lambda s: token(s, "writer", SECRETS["reader"]),
    "old": lambda s: token(s, "writer", SECRETS["writer"], -1),
    "valid for too long": lambda s: token(s, "writer", SECRETS["writer"], 2 * LIFE_MS_MAX),
    "disabled user": lambda s: token(s, "disabled", "secret-of-disabled"),
}


@pytest.mark.parametrize("kind", TOKENS)
async def test_n09_a_call_without_a_valid_token_changes_nothing(
    kind: str, start_broker: StartBroker, tmp_path: Path
) -> None:
    disabled = user("disabled", enabled=False, role="admin")
    write_users(users_path(tmp_path), *USERS, disabled)
    async with secured_broker(start_broker) as secured:
        metadata = TOKENS[kind](secured)
        assert await secured.append(TOPIC, metadata) == ResponseCode.UNAUTHENTICATED
        request = admin_pb2.DeleteTopicRequest(topic=TOPIC)
        answer = await secured.running.admin.DeleteTopic(request, metadata=metadata)
        assert answer.status.code == ResponseCode.UNAUTHENTICATED
        assert secured.count(TOPIC) == 0
        assert await secured.append(TOPIC, secured.metadata("writer")) == ResponseCode.SUCCESS
        assert secured.count(TOPIC) == 1


async def test_n09_a_token_serves_until_it_expires(secured: Secured) -> None:
    metadata = token(secured, "writer", SECRETS["writer"])
    for _ in range(3):
        assert await secured.append(TOPIC, metadata) == ResponseCode.SUCCESS
    secured.running.clock.advance(MINUTE_MS)
    assert await secured.append(TOPIC, metadata) == ResponseCode.UNAUTHENTICATED
    assert secured.count(TOPIC) == 3


async def test_n09_a_verified_token_ends_with_its_secret_key(secured: Secured) -> None:
    metadata = secured.metadata("writer")
    assert await secured.append(TOPIC, metadata) == ResponseCode.SUCCESS
    users = secured.running.broker.services.access.users
    change = admin_pb2.User(access_key="writer", secret_key="a-new-secret-key")
    await users.update(change, create=False)
    assert await secured.append(TOPIC, metadata) == ResponseCode.UNAUTHENTICATED
    assert await secured.append(TOPIC, token(secured, "writer", "a-new-secret-key")) == 0


async def test_n09_a_user_of_another_broker_is_refused(secured: Secured, tmp_path: Path) -> None:
    """Signs as a user of the same name at the other broker."""
    write_users(tmp_path / "elsewhere.json", user("admin", role="admin", secret_key=WRONG))
    metadata = token(secured, "admin", WRONG)
    assert await secured.append(TOPIC, metadata) == ResponseCode.UNAUTHENTICATED


def altered_body(command: RemotingCommand) -> RemotingCommand:
    return msgspec.structs.replace(command, body=b"y")


def altered_topic(command: RemotingCommand) -> RemotingCommand:
    return msgspec.structs.replace(command, ext_fields={**command.ext_fields, "topic": "invoices"})


def added_field(command: RemotingCommand) -> RemotingCommand:
    return msgspec.structs.replace(command, ext_fields={**command.ext_fields, "batch": "true"})


def without_signature(command: RemotingCommand) -> RemotingCommand:
    fields = {name: text for name, text in command.ext_fields.items() if name != "Signature"}
    return msgspec.structs.replace(command, ext_fields=fields)


SIGNED: dict[str, Callable[[RemotingCommand], RemotingCommand]] = {
    "none": lambda command: command,
    "wrong": lambda command: signed(command, "writer", WRONG),
    "unknown user": lambda command: signed(command, "stranger", WRONG),
    "another user's": lambda command: signed(command, "writer", SECRETS["reader"]),
    "altered body": lambda command: altered_body(signed(command, "writer", SECRETS["writer"])),
    "altered topic": lambda command: altered_topic(signed(command, "writer", SECRETS["writer"])),
    "added field": lambda command: added_field(signed(command, "writer", SECRETS["writer"])),
    "no signature": lambda command: without_signature(signed(command, "writer", WRONG)),
    "no Unicode": lambda command: msgspec.structs.replace(
        command, ext_fields={"AccessKey": "writer", "Signature": "\ud800", **command.ext_fields}
    ),
}


@pytest.mark.parametrize("kind", SIGNED)
async def test_n09_a_remoting_request_without_a_valid_signature_changes_nothing(
    kind: str, secured: Secured
) -> None:
    command = secured.command(Code.SEND_MESSAGE, HEADER, b"x")
    if kind == "no Unicode":
        # No frame can carry it; the check must not fail on it either.
        credentials = remoting_credentials(SIGNED[kind](command))
        assert credentials is not None
        assert not credentials.is_signed_by(SECRETS["writer"])
        return
    answer = await secured.answer(SIGNED[kind](command))
    assert answer.code == ResponseCode.NO_PERMISSION
    assert secured.count(TOPIC) == 0
    answer = await secured.ask("writer", Code.SEND_MESSAGE, HEADER, b"x")
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert secured.count(TOPIC) == 1


async def test_n09_a_security_token_is_signed_and_otherwise_ignored(secured: Secured) -> None:
    command = secured.command(Code.SEND_MESSAGE, HEADER, b"x")
    answer = await secured.answer(signed(command, "writer", SECRETS["writer"], "session"))
    assert answer.code == ResponseCode.SUCCESS, answer.remark


@pytest.mark.parametrize("access_key", ["writer", "stranger"])
async def test_n09_a_refusal_does_not_say_if_the_user_exists(
    access_key: str, secured: Secured
) -> None:
    texts = set()
    for name in ("stranger", access_key):
        request = admin_pb2.GetBrokerInfoRequest()
        answer = await secured.running.admin.GetBrokerInfo(
            request,
            metadata=token(secured, name, WRONG),
        )
        command = signed(secured.command(Code.GET_BROKER_RUNTIME_INFO), name, WRONG)
        texts |= {answer.status.remark, (await secured.answer(command)).remark}
    assert len(texts) == 1


async def test_n09_the_name_server_of_the_broker_refuses_unsigned_requests(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    write_users(users_path(tmp_path), *USERS)
    async with secured_broker(start_broker, name_server_port=0) as secured:
        assert secured.running.ready.name_server_port is not None
        async with connected(secured.running.ready.name_server_port) as client:
            secured.remoting.client = client
            route = GetRouteInfoRequest(TOPIC)
            unsigned = await secured.answer(secured.command(Code.GET_ROUTEINFO_BY_TOPIC, route))
            assert unsigned.code == ResponseCode.NO_PERMISSION
            assert (await secured.ask("reader", Code.GET_ROUTEINFO_BY_TOPIC, route)).code == 0
            template = GetRouteInfoRequest("TBW102")
            assert (await secured.ask("writer", Code.GET_ROUTEINFO_BY_TOPIC, template)).code == 0
            put = PutKVConfigRequest("n", "k", "v")
            answer = await secured.ask("writer", Code.PUT_KV_CONFIG, put)
            assert answer.code == ResponseCode.NO_PERMISSION


# --- Forms of credentials ---


@pytest.mark.parametrize("more", [{}, {"_UNIQUE_KEY_QUERY": "true"}])
def test_n09_a_signature_of_rocketmqs_classes_is_verified(more: dict[str, str]) -> None:
    """Compares with a vector of RocketMQ 5.3.3; some versions do not sign the flag."""
    fields = {"b": "ProbeT", "a": "PG", "e": "0", "AccessKey": "user1", "SecurityToken": "tok"}
    fields |= {"Signature": "cyXHePp5G29mIOhdyzVGXNb+fUM=", **more}
    credentials = remoting_credentials(RemotingCommand(10, 1, ext_fields=fields, body=b"hello"))
    assert credentials is not None
    assert credentials.access_key == "user1"
    assert credentials.is_signed_by("secret1234")
    assert not credentials.is_signed_by("secret1235")


DATE_TIME = "20260101T000000Z"
SIGNATURE = "963abd36ad60920c3f000248e63ad8782dd2a04e"


@pytest.mark.parametrize(
    "authorization",
    [
        f"MQv2-HMAC-SHA1 Credential=ak, SignedHeaders=x-mq-date-time, Signature={SIGNATURE}",
        f"MQv2-HMAC-SHA1 Credential=ak//Rocketmq,SignedHeaders=x,Signature={SIGNATURE.upper()}",
        f"any Signature={SIGNATURE}, Credential=ak/region/RocketMQ",
    ],
)
def test_n09_the_signature_of_rocketmqs_grpc_clients_is_verified(authorization: str) -> None:
    """Compares with a vector whose secret key is `secretKey`."""
    metadata = {"x-mq-date-time": DATE_TIME, "authorization": authorization}
    credentials = mqv2_credentials(metadata)
    assert credentials is not None
    assert credentials.access_key == "ak"
    assert credentials.is_signed_by("secretKey")
    assert not credentials.is_signed_by("secretKez")
    later = mqv2_credentials({**metadata, "x-mq-date-time": "20260101T000001Z"})
    assert later is not None
    assert not later.is_signed_by("secretKey")


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"x-mq-date-time": DATE_TIME},
        {"authorization": f"MQv2-HMAC-SHA1 Credential=ak, Signature={SIGNATURE}"},
        {"x-mq-date-time": DATE_TIME, "authorization": "MQv2-HMAC-SHA1"},
        {"x-mq-date-time": DATE_TIME, "authorization": "a Credential=ak, Signature=xyz"},
        {"x-mq-date-time": DATE_TIME, "authorization": f"a Credential=, Signature={SIGNATURE}"},
    ],
)
def test_n09_metadata_without_a_signature_has_no_credentials(metadata: dict[str, str]) -> None:
    assert mqv2_credentials(metadata) is None


def test_n09_no_form_of_credentials_shows_its_secret() -> None:
    text = bearer_token("alice", "a-secret-key", 1)
    shown = repr(
        [
            bearer_credentials(f"Bearer {text}"),
            basic_credentials("Basic YWxpY2U6YS1zZWNyZXQta2V5"),
            TokenSource("alice", "a-secret-key", lambda: 0),
            user("alice", secret_key="x" * 8).access_key,
        ]
    )
    assert "a-secret-key" not in shown
    assert text not in shown


def test_a_client_makes_a_token_anew_before_the_last_minute() -> None:
    times = iter([0, 0, 180_000, 180_001])
    source = TokenSource("alice", "a-secret-key", lambda: next(times))
    first, second, third, fourth = (source.token() for _ in range(4))
    assert first == second == third
    assert fourth != first


@pytest.mark.parametrize("size", [credentials.TWICE_BYTES_MAX, credentials.TWICE_BYTES_MAX + 1])
def test_n09_a_body_that_is_too_large_to_be_hashed_twice_is_hashed_in_the_first_form(
    size: int,
) -> None:
    signed, body = {"AccessKey": "a"}, bytes(size)
    fields = {**signed, "Signature": signature(signed, body, "secret")}
    fields[credentials.UNIQUE_KEY_QUERY] = "true"
    found = remoting_credentials(RemotingCommand(1, 1, ext_fields=fields, body=body))
    assert found is not None
    assert found.is_signed_by("secret") is (size == credentials.TWICE_BYTES_MAX)

"""Requests of every code that a broker or a name server serves, with missing and absurd fields.

The headers' classes give the fields, so a new code is tested, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import msgspec
import pytest

from rocketpy_broker.server.remoting.server import RemotingServer
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.remoting import EXCHANGES, RemotingCommand
from tests.support.broker.clients.remoting_client import (
    RemotingBroker,
    RemotingClient,
    RunningNameServer,
)
from tests.support.broker.event_loop import longest_pass_ms

NUMBERS = ["", "x", "1.5", "9" * 30, "-" + "9" * 30, "NaN"]
TEXTS = ["", "x" * 30_000, "\x00\n\U0001f680", "../../T", "T@G", "%d%s{}"]
BODIES = [
    b"{",
    b"[]",
    b"\xff",
    b"null",
    b"[" * 60_000,
    b'{"a":' * 10_000,
    b"{'x':[" + b"1," * (1 << 20) + b"1]}",
    bytes(1 << 20),
]
# The texts of headers are read as they are; longer work in one piece would delay other clients.
PASS_MS_MAX = 100
ANSWER_SECONDS = 60
UNKNOWN = "failed with an unknown error"


class Field(NamedTuple):
    """A field of a header: its name in the class, and its kind."""

    name: str
    is_required: bool
    is_number: bool


def fields_of(code: int) -> list[Field]:
    """Returns the fields of a request's header."""
    found = msgspec.structs.fields(EXCHANGES[Code(code)].request.kind)
    numbers = {"Annotated", "int", "bool"}
    return [
        Field(
            each.encode_name,
            each.required,
            any(name in str(each.type) for name in numbers) and "str" not in str(each.type),
        )
        for each in found
    ]


def plain_fields(code: int) -> dict[str, str]:
    """Returns a whole header with the required fields alone."""
    texts = {True: "0", False: "T"}
    plain = {each.name: texts[each.is_number] for each in fields_of(code) if each.is_required}
    # RocketMQ's brokers do not answer a transaction that stays open.
    return plain | {"commitOrRollback": "8"} if code == Code.END_TRANSACTION else plain


def codes_of(server: RemotingServer) -> list[int]:
    """Returns the codes that a server serves at once; it holds a slave's request for files."""
    return sorted(server._processors.keys() - {Code.GET_STAGED_FILES})


async def answered(
    client: RemotingClient, code: int, fields: dict[str, str], body: bytes = b""
) -> RemotingCommand:
    """Returns the answer to a request; it has a declared code and a short remark."""
    asking = client.ask(code, None, body, ext_fields=fields)
    try:
        answer = await asyncio.wait_for(asking, ANSWER_SECONDS)
    except asyncio.TimeoutError:
        pytest.fail(f"{Code(code).name} has no answer to {fields!s:.300} {body[:20]!r}")
    remark = answer.remark or ""
    asked = f"{Code(code).name} {fields!s:.300} {body[:20]!r}: {answer.code} {remark:.300}"
    assert answer.code in set(ResponseCode), asked
    assert UNKNOWN not in remark, asked
    assert len(remark) <= 1_100, asked
    return answer


def wrong_numbers(code: int) -> Iterator[tuple[str, str]]:
    for each in fields_of(code):
        if each.is_number:
            yield from ((each.name, text) for text in NUMBERS)


async def check_fields(client: RemotingClient, codes: list[int]) -> None:
    """Asserts that each missing field, and each number that is none, is refused by its name."""
    for code in codes:
        whole = plain_fields(code)
        for name in whole:
            rest = {each: text for each, text in whole.items() if each != name}
            answer = await answered(client, code, rest)
            assert answer.code == ResponseCode.SYSTEM_ERROR, (code, name)
            assert name in (answer.remark or "")
        for name, text in wrong_numbers(code):
            answer = await answered(client, code, whole | {name: text})
            assert answer.code == ResponseCode.SYSTEM_ERROR, (code, name, text)
            assert name in (answer.remark or "")


async def check_texts(client: RemotingClient, codes: list[int]) -> None:
    """Asserts that texts of any length and characters get a declared code."""
    for code in codes:
        numbers = {each.name for each in fields_of(code) if each.is_number}
        for text in TEXTS:
            whole = {
                name: old if name in numbers else text for name, old in plain_fields(code).items()
            }
            await answered(client, code, whole)


async def check_bodies(client: RemotingClient, codes: list[int]) -> None:
    """Asserts that bodies that are none of their code get a declared code, in short steps."""
    for body in BODIES:
        for code in codes:
            ask = partial(answered, client, code, plain_fields(code), body)
            _, pass_ms, _ = await longest_pass_ms(ask, PASS_MS_MAX)
            assert pass_ms <= PASS_MS_MAX, (Code(code).name, body[:20])


CHECKS: list[Any] = [check_fields, check_texts, check_bodies]


@pytest.mark.parametrize("check", CHECKS)
async def test_n12_every_code_of_a_broker_checks_its(remoting: RemotingBroker, check: Any) -> None:
    codes = codes_of(remoting.server)
    assert {Code.POP_MESSAGE, Code.SEND_MESSAGE_V2, Code.UPDATE_AND_CREATE_TOPIC} <= set(codes)
    await check(remoting.client, codes)
    await remoting.running.create_topic("T")
    await check(remoting.client, codes)


@pytest.mark.parametrize("check", CHECKS)
async def test_n12_every_code_of_a_name_server_checks_its(
    name_server: RunningNameServer, check: Any
) -> None:
    codes = codes_of(name_server.server.server)
    assert Code.REGISTER_BROKER in codes
    async with name_server.client() as client:
        await check(client, codes)

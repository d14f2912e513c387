"""Transactions of producers: half messages, their ends, and checks down the telemetry stream."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from rocketpy_broker.server.apache_v2.transaction_id import TransactionId
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.apache.rocketmq.v2 import service_pb2
from tests.broker.apache_v2.test_routes import create
from tests.support.broker.clients.apache_client import (
    BORN_MS,
    ApacheClient,
    message,
    producing,
    records,
    topic,
)
from tests.support.broker.running_broker import RunningBroker, StartBroker
from tests.support.broker.transactions import rounds

ENDS = {v2.COMMIT: [b"body"], v2.ROLLBACK: list[bytes]()}


async def prepared(apache: ApacheClient, name: str = "t", **system: Any) -> Any:
    """Returns the entry of a half message."""
    each = message(name, message_type=v2.TRANSACTION, **system)
    response = await apache.send(each)
    assert response.status.code == v2.OK, response.status.message
    return response.entries[0]


async def end(
    apache: ApacheClient,
    entry: Any,
    resolution: v2.TransactionResolution,
    *,
    name: str = "t",
    source: v2.TransactionSource = v2.SOURCE_CLIENT,
    **fields: Any,
) -> v2.Status:
    usual = {"message_id": entry.message_id, "transaction_id": entry.transaction_id}
    request = service_pb2.EndTransactionRequest(
        topic=topic(name), resolution=resolution, source=source, **usual | fields
    )
    status: v2.Status = (await apache.call("EndTransaction", request)).status
    return status


async def bodies(running: RunningBroker, name: str = "t") -> list[bytes]:
    return [each.body for each in await records(running, name)]


async def checked(apache: ApacheClient, call: Any, count: int = 1) -> Any:
    """Runs rounds of checks and returns the command that comes down the stream."""
    await rounds(apache.running, count)
    command = await call.read()
    assert command.HasField("recover_orphaned_transaction_command"), command
    return command.recover_orphaned_transaction_command


@pytest.mark.parametrize("resolution", ENDS)
async def test_a_half_message_shows_only_after_its_commit(
    resolution: v2.TransactionResolution, apache: ApacheClient
) -> None:
    await create(apache, "t", read=1, write=1)
    entry = await prepared(apache)
    assert entry.transaction_id != ""
    assert await bodies(apache.running) == []
    for _ in range(2):
        # A repeated decision gets the same answer.
        assert (await end(apache, entry, resolution)).code == v2.OK
    assert await bodies(apache.running) == ENDS[resolution]
    other = v2.ROLLBACK if resolution == v2.COMMIT else v2.COMMIT
    assert (await end(apache, entry, other)).code == v2.INVALID_TRANSACTION_ID
    assert await bodies(apache.running) == ENDS[resolution]


async def test_an_unspecified_resolution_changes_nothing(apache: ApacheClient) -> None:
    await create(apache, "t", read=1, write=1)
    entry = await prepared(apache)
    unspecified = v2.TRANSACTION_RESOLUTION_UNSPECIFIED
    assert (await end(apache, entry, unspecified)).code == v2.OK
    assert (await end(apache, entry, v2.COMMIT)).code == v2.OK
    assert await bodies(apache.running) == [b"body"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transaction_id": " "}, v2.INVALID_TRANSACTION_ID),
        ({"transaction_id": "ID"}, v2.INVALID_TRANSACTION_ID),
        ({"transaction_id": "ID-0-0"}, v2.INVALID_TRANSACTION_ID),
        ({"transaction_id": "ID-FFFFFFFFFFF-0"}, v2.INVALID_TRANSACTION_ID),
        ({"message_id": "another"}, v2.INVALID_TRANSACTION_ID),
        ({"topic": topic("u")}, v2.INVALID_TRANSACTION_ID),
        ({"topic": topic("a.b")}, v2.ILLEGAL_TOPIC),
        ({"resolution": 7}, v2.BAD_REQUEST),
    ],
)
async def test_an_end_of_no_open_transaction_has_its_code(
    fields: dict[str, Any], code: v2.Code, apache: ApacheClient
) -> None:
    await create(apache, "t", read=1, write=1)
    entry = await prepared(apache)
    usual = {
        "topic": topic("t"),
        "message_id": entry.message_id,
        "transaction_id": entry.transaction_id,
        "resolution": v2.COMMIT,
    }
    request = service_pb2.EndTransactionRequest(**usual | fields)
    response = await apache.call("EndTransaction", request)
    assert response.status.code == code, response.status.message
    assert await bodies(apache.running) == []


def test_a_transaction_id_keeps_any_message_id() -> None:
    for message_id in ("01AB", "a-b-3", "-"):
        given = TransactionId(message_id, 1 << 40, 12)
        assert TransactionId.decode(given.encode()) == given


@pytest.mark.parametrize("flush", list(FlushDiskType))
@pytest.mark.parametrize("resolution", ENDS)
async def test_a_transaction_ends_after_a_kill_of_the_broker(
    flush: FlushDiskType,
    resolution: v2.TransactionResolution,
    start_crashed: StartBroker,
    start_broker: StartBroker,
) -> None:
    async with start_crashed(flush) as running:
        apache = ApacheClient(running)
        await create(apache, "t", read=1, write=1)
        entry = await prepared(apache)
        running.broker.services.flush.group_commit.flush_soon()
    async with start_broker(flush) as running:
        assert (await end(ApacheClient(running), entry, resolution)).code == v2.OK
        assert await bodies(running) == ENDS[resolution]
    async with start_broker(flush) as running:
        # The outcome is no longer known after a clean stop, but nothing shows twice.
        answer = await end(ApacheClient(running), entry, resolution)
        assert answer.code == v2.INVALID_TRANSACTION_ID
        assert await bodies(running) == ENDS[resolution]


# --- Checks ---


async def test_an_orphaned_transaction_is_checked_down_a_telemetry_stream(
    apache: ApacheClient,
) -> None:
    await create(apache, "t", read=1, write=1)
    async with apache.telemetry(producing("t", "u")) as call:
        entry = await prepared(apache, tag="a", keys=["k"], trace_context="trace")
        command = await checked(apache, call)
        found, system = command.message, command.message.system_properties
        assert (found.topic, found.body) == (topic("t"), b"body")
        assert (system.message_id, system.tag, list(system.keys)) == (entry.message_id, "a", ["k"])
        assert (system.trace_context, system.born_host) == ("trace", "host")
        assert (system.body_encoding, system.message_type) == (v2.IDENTITY, v2.TRANSACTION)
        digest = hashlib.md5(b"body", usedforsecurity=False).hexdigest().upper()
        assert system.body_digest == v2.Digest(type=v2.MD5, checksum=digest)
        assert system.born_timestamp.ToMilliseconds() == BORN_MS
        assert dict(found.user_properties) == {}
        answer = await end(
            apache,
            entry,
            v2.COMMIT,
            source=v2.SOURCE_SERVER_CHECK,
            transaction_id=command.transaction_id,
        )
        assert answer.code == v2.OK
    assert await bodies(apache.running) == [b"body"]
    # The id of the first answer ends the same transaction.
    assert (await end(apache, entry, v2.COMMIT)).code == v2.OK
    assert await bodies(apache.running) == [b"body"]


async def test_a_check_follows_each_round_until_an_answer(apache: ApacheClient) -> None:
    await create(apache, "t", read=1, write=1)
    async with apache.telemetry(producing("t")) as call:
        entry = await prepared(apache)
        commands = [await checked(apache, call) for _ in range(3)]
        ids = [each.transaction_id for each in commands]
        assert len(set(ids)) == 3
        assert [dict(each.message.user_properties) for each in commands] == [{}] * 3
        answer = await end(apache, entry, v2.ROLLBACK, transaction_id=ids[0])
        assert answer.code == v2.OK
    assert await bodies(apache.running) == []


async def test_a_message_checked_twice_has_the_properties_of_its_sender(
    apache: ApacheClient,
) -> None:
    await create(apache, "t", read=1, write=1)
    each = message("t", message_type=v2.TRANSACTION)
    each.user_properties["colour"] = "blue"
    async with apache.telemetry(producing("t")) as call:
        (entry,) = (await apache.send(each)).entries
        for _ in range(2):
            command = await checked(apache, call)
            assert dict(command.message.user_properties) == {"colour": "blue"}
    assert (await end(apache, entry, v2.COMMIT)).code == v2.OK
    (record,) = await records(apache.running, "t")
    assert record.properties["colour"] == "blue"
    # Clients of every protocol read these.
    assert not [name for name in record.properties if name.startswith("ROCKETPY_")]


async def test_any_producer_of_the_topic_may_be_asked(apache: ApacheClient) -> None:
    await create(apache, "t", read=1, write=1)
    await create(apache, "u", read=1, write=1)
    other = ApacheClient(apache.running, "other")
    stranger = ApacheClient(apache.running, "stranger")
    async with other.telemetry(producing("t")) as call, stranger.telemetry(producing("u")):
        entry = await prepared(apache)
        command = await checked(apache, call)
        assert command.message.system_properties.message_id == entry.message_id


async def test_producers_of_a_topic_are_asked_in_turn(apache: ApacheClient) -> None:
    await create(apache, "t", read=1, write=1)
    other = ApacheClient(apache.running, "other")
    async with apache.telemetry(producing("t")) as mine, other.telemetry(producing("t")) as theirs:
        await prepared(apache)
        await rounds(apache.running, 2)
        for call in (mine, theirs):
            assert (await call.read()).HasField("recover_orphaned_transaction_command")


async def test_a_producer_without_settings_is_asked_after_its_half_message(
    apache: ApacheClient,
) -> None:
    """Opens a stream as the SDK for Python does minutes before it sends settings again."""
    await create(apache, "t", read=1, write=1)
    async with apache.telemetry() as call:
        await call.initial_metadata()
        entry = await prepared(apache)
        command = await checked(apache, call)
        assert command.message.system_properties.message_id == entry.message_id


async def test_a_check_names_the_topic_in_the_client_s_namespace(apache: ApacheClient) -> None:
    apache.namespace = "ns"
    await create(apache, "ns%t", read=1, write=1)
    async with apache.telemetry(producing("t")) as call:
        entry = await prepared(apache)
        command = await checked(apache, call)
        assert command.message.topic == topic("t", "ns")
        answer = await end(apache, entry, v2.COMMIT, transaction_id=command.transaction_id)
        assert answer.code == v2.OK
    assert await bodies(apache.running, "ns%t") == [b"body"]


async def test_a_topic_with_the_longest_name_has_checks(apache: ApacheClient) -> None:
    name = "t" * 127
    await create(apache, name, read=1, write=1)
    async with apache.telemetry(producing(name)) as call:
        await prepared(apache, name)
        assert (await checked(apache, call)).message.topic == topic(name)


async def test_the_recovery_duration_delays_the_first_check(apache: ApacheClient) -> None:
    await create(apache, "t", read=1, write=1)
    async with apache.telemetry(producing("t")) as call:
        each = message("t", message_type=v2.TRANSACTION)
        now_ms = apache.running.clock.now_ms()
        each.system_properties.born_timestamp.FromMilliseconds(now_ms)
        each.system_properties.orphaned_transaction_recovery_duration.seconds = 70
        (entry,) = (await apache.send(each)).entries
        await rounds(apache.running, 2)
        stream = apache.running.broker.services.groups.clients._streams.get(apache.client_id)
        assert stream is not None
        assert not stream._checks
        command = await checked(apache, call)
        # The time of the producer's own end has passed; the answer to the check ends it.
        assert (await end(apache, entry, v2.COMMIT)).code == v2.INVALID_TRANSACTION_ID
        answer = await end(
            apache,
            entry,
            v2.COMMIT,
            source=v2.SOURCE_UNSPECIFIED,
            transaction_id=command.transaction_id,
        )
        assert answer.code == v2.OK


async def test_a_check_follows_after_a_restart(start_broker: StartBroker) -> None:
    async with start_broker() as running:
        apache = ApacheClient(running)
        await create(apache, "t", read=1, write=1)
        entry = await prepared(apache)
    async with start_broker(clock=running.clock) as running:
        apache = ApacheClient(running)
        async with apache.telemetry(producing("t")) as call:
            command = await checked(apache, call)
            assert command.message.system_properties.message_id == entry.message_id
            answer = await end(apache, entry, v2.COMMIT, transaction_id=command.transaction_id)
            assert answer.code == v2.OK
        assert await bodies(running) == [b"body"]


async def test_a_broker_without_transactions_refuses_them(start_broker: StartBroker) -> None:
    async with start_broker(reject_transaction_message=True) as running:
        apache = ApacheClient(running)
        await create(apache, "t")
        response = await apache.send(message("t", message_type=v2.TRANSACTION))
        assert response.status.code == v2.FORBIDDEN

"""H03: a slave refuses each call that writes, before anything is changed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import msgspec
import pytest
from google.protobuf.message_factory import GetMessageClass

from rocketpy_broker.server.calls import writes
from rocketpy_broker.server.security.remoting_access import REQUIREMENTS as OF_REMOTING
from rocketpy_broker.server.security.rocketpy_v1_access import REQUIREMENTS as OF_ROCKETPY
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.apache.rocketmq.v2 import service_pb2
from rocketpy_proto.model.codes import RequestCode, ResponseCode
from rocketpy_proto.remoting import EXCHANGES, RemotingCommand, encode_frame
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2, groups_pb2
from tests.broker.http.api_client import ask
from tests.broker.metrics.scrape import get
from tests.broker.replication.slaves.own_slave import MASTER, slave
from tests.support.broker.clients.apache_client import ApacheClient
from tests.support.broker.clients.remoting_client import RemotingBroker
from tests.support.broker.running_broker import RunningBroker, StartBroker

REFUSED = ResponseCode.SERVICE_NOT_AVAILABLE


@pytest.fixture
async def started(start_broker: StartBroker) -> AsyncIterator[RunningBroker]:
    """Yields a slave with the topic T, two messages, and HTTP."""
    async with start_broker() as master:
        await master.create_topic("T")
        await master.append("T", 0, b"a", b"b")
    async with slave(start_broker, http_port=0) as running:
        yield running


@pytest.fixture
def running(started: RunningBroker) -> Iterator[RunningBroker]:
    """Yields the slave; the test changes nothing."""
    before = state(started)
    yield started
    assert state(started) == before


def state(running: RunningBroker) -> tuple[int, list[str], list[str]]:
    services = running.broker.services
    topics = services.topics.names(include_system=True)
    return running.broker.store.positions().log_end, [*topics], [*services.groups.configs.names()]


def method_of(service: str, method: str) -> Any:
    """Returns the descriptor of a method of gRPC."""
    pool = broker_pb2.DESCRIPTOR.pool
    return pool.FindServiceByName(service).methods_by_name[method]


async def called(running: RunningBroker, service: str, method: str, metadata: Any = ()) -> Any:
    """Returns the first answer to an empty request."""
    described = method_of(service, method)
    request = GetMessageClass(described.input_type)().SerializeToString()
    decode = GetMessageClass(described.output_type).FromString
    call: Any = running.channel.stream_stream(f"/{service}/{method}", response_deserializer=decode)
    answer = await call(iter([request]), metadata=metadata).read()
    assert answer is not grpc.aio.EOF
    return answer


@pytest.mark.parametrize("name", sorted(writes.ROCKETPY_V1 - {"Testing/ForgetWriters"}))
async def test_h03_each_method_that_writes_is_refused(running: RunningBroker, name: str) -> None:
    service, _, method = name.partition("/")
    answer = await called(running, f"rocketpy.v1.{service}", method)
    assert answer.status.code == REFUSED
    assert f"this broker is a slave: send to its master {MASTER}" in answer.status.remark


@pytest.mark.parametrize("name", sorted(writes.APACHE_V2))
async def test_h03_each_method_of_rocketmq_that_writes_is_refused(
    running: RunningBroker, name: str
) -> None:
    metadata = ApacheClient(running).metadata
    answer = await called(running, "apache.rocketmq.v2.MessagingService", name, metadata)
    assert answer.status.code not in {v2.OK, v2.CODE_UNSPECIFIED}
    assert MASTER in answer.status.message


async def test_h03_each_request_of_remoting_that_writes_is_refused(running: RunningBroker) -> None:
    async with RemotingBroker.of(running) as remoting:
        for code in sorted(writes.REMOTING):
            fields = dict.fromkeys(_required(code), "1")
            command = RemotingCommand(code, opaque=code, ext_fields=fields)
            remoting.client.writer.writelines(encode_frame(command))
            answer = await remoting.client.next()
            assert (answer.code, answer.opaque) == (REFUSED, code), answer.remark
            assert MASTER in (answer.remark or "")


def _required(code: int) -> list[str]:
    """Returns the names of the fields that a header needs."""
    form = EXCHANGES[RequestCode(code)].request
    needed = (each.encode_name for each in msgspec.structs.fields(form.kind) if each.required)
    return [form.names.get(name, name) for name in needed]


def test_h03_the_tables_name_known_methods_and_codes() -> None:
    assert OF_ROCKETPY.keys() >= writes.ROCKETPY_V1
    assert OF_REMOTING.keys() >= writes.REMOTING
    known = service_pb2.DESCRIPTOR.services_by_name["MessagingService"].methods_by_name
    assert {*known} >= writes.APACHE_V2


async def test_h03_offsets_and_heartbeats_are_taken(started: RunningBroker) -> None:
    running = started
    await running.pull(topic="T", consumer_group="g")
    offset = broker_pb2.CommittedOffset(topic="T", queue_id=0, offset=1)
    asked = broker_pb2.CommitOffsetsRequest(consumer_group="g", offsets=[offset])
    assert (await running.data.CommitOffsets(asked)).status.code == ResponseCode.SUCCESS
    beat = groups_pb2.HeartbeatRequest(client_id="c", producer_groups=["p"])
    assert (await running.groups.Heartbeat(beat)).status.code == ResponseCode.SUCCESS


async def test_h03_a_slave_is_healthy(running: RunningBroker) -> None:
    status, body = (await get(running, "/healthz"))[:2]
    assert status == 200
    assert json.loads(body)["refusal"] == ""
    assert (await running.admin.GetBrokerInfo(admin_pb2.GetBrokerInfoRequest())).refusal == ""


async def test_h03_the_json_api_of_a_slave_refuses_changes(running: RunningBroker) -> None:
    reply = await ask(running, "DELETE", "/topics/T")
    assert reply.error == (503, REFUSED)
    assert MASTER in reply.json["message"]

"""The permissions that each request requires: a line for every method and request code."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import fields

from rocketpy_broker.server.security import remoting_access, rocketpy_v1_access
from rocketpy_broker.server.security.errors import NoPermissionError, UserError
from rocketpy_broker.server.security.permissions import (
    BROKER,
    Action,
    Permissions,
    Principal,
    Resource,
    Role,
    authorize,
    group,
    parse_permission,
    permission_text,
    popped,
    topic,
)
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.remoting import EXCHANGES, REQUEST_BODIES, encode_body
from rocketpy_proto.remoting.bodies.clients import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from rocketpy_proto.remoting.headers.clients import DeleteGroupRequest
from rocketpy_proto.remoting.headers.pulls import (
    SUBSCRIPTION,
    PullMessageRequest,
    ViewMessageRequest,
)
from rocketpy_proto.remoting.headers.sends import (
    ConsumerSendMsgBackRequest,
)
from rocketpy_proto.rocketpy.v1 import (
    admin_pb2,
    broker_pb2,
    groups_pb2,
    retry_pb2,
    testing_pb2,
    transactions_pb2,
)
from tests.support.blocks import wire_block
from tests.support.broker.clients.users import GROUP, OTHER, TOPIC, Secured, sent_offset

NO = ResponseCode.NO_PERMISSION
CONTRACTS = (admin_pb2, broker_pb2, groups_pb2, retry_pb2, testing_pb2, transactions_pb2)


def principal(
    topics: dict[str, str], groups: dict[str, str] | None = None, default: str = "DENY"
) -> Principal:
    def parsed(texts: dict[str, str]) -> Permissions:
        entries = {name: parse_permission(text) for name, text in texts.items()}
        return Permissions(entries, parse_permission(default))

    return Principal("alice", Role.USER, parsed(topics), parsed(groups or {}))


ORDERS = {"orders": "PUB", "orders*": "SUB", "orders-eu*": "ALL", "orders-secret": "DENY"}


@pytest.mark.parametrize(
    ("resource", "granted"),
    [
        (topic("orders"), Action.PUB),
        (topic("orders-us"), Action.SUB),
        (topic("orders-eu-1"), Action.ALL),
        (topic("orders-secret"), Action.DENY),
        (topic("invoices"), Action.DENY),
        (group("readers"), Action.SUB),
        (group("orders"), Action.DENY),
        # Retry topics and dead letters follow their group, which may send back.
        (topic("%RETRY%readers"), Action.SUB | Action.PUB),
        (topic("%DLQ%readers"), Action.SUB | Action.PUB),
        (topic("%RETRY%others"), Action.DENY),
        (topic("%RETRY%readers_orders"), Action.DENY),
        (popped("%RETRY%readers_orders", "readers"), Action.SUB | Action.PUB),
        (popped("%RETRY%readers+orders", "readers"), Action.SUB | Action.PUB),
        (popped("%RETRY%readers2", "readers"), Action.DENY),
        (popped("%RETRY%readers_2", ""), Action.DENY),
        (popped("orders-us", "readers"), Action.SUB),
        (BROKER, Action.DENY),
    ],
)
def test_n09_the_most_exact_entry_counts(resource: Resource, granted: Action) -> None:
    assert principal(ORDERS, {"readers": "SUB"}).granted(resource) == granted


@pytest.mark.parametrize(
    "name",
    [
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "rmq_sys_wheel_timer",
        "RMQ_SYS_anything",
        "SCHEDULE_TOPIC_XXXX",
        "TBW102",
        "DefaultCluster_REPLY_TOPIC",
    ],
)
def test_n09_a_system_topic_needs_an_entry_with_its_exact_name(name: str) -> None:
    assert principal({"*": "ALL", f"{name}*": "ALL"}, default="ALL").granted(topic(name)) == 0
    assert principal({name: "PUB"}).granted(topic(name)) == Action.PUB


def test_n09_one_of_several_actions_is_enough() -> None:
    alice = principal({"orders": "SUB"})
    authorize(alice, Action.PUB | Action.SUB, topic("orders"))
    with pytest.raises(NoPermissionError, match="'alice' lacks the permission PUB for topic 'or"):
        authorize(alice, Action.PUB, topic("orders"))


@pytest.mark.parametrize("text", ["PUB", "SUB", "PUB|SUB", "ALL", "DENY"])
def test_a_permission_is_read_as_it_is_written(text: str) -> None:
    assert permission_text(parse_permission(text)) == text


@pytest.mark.parametrize("text", ["", "PUBLISH", "PUB,SUB", "DENY|PUB", "ADMIN", "MONITOR"])
def test_another_permission_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="accepted is PUB"):
        parse_permission(text)


# --- The tables ---


def methods() -> list[str]:
    return [
        f"{service.name}/{method.name}"
        for contract in CONTRACTS
        for service in contract.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]


def test_n09_every_method_has_a_line() -> None:
    assert sorted(rocketpy_v1_access.REQUIREMENTS) == sorted(methods())


async def test_n09_every_request_code_that_is_served_has_a_line(secured: Secured) -> None:
    remoting = secured.running.broker.remoting
    assert remoting.server is not None
    served = {*remoting.server._processors}
    assert served <= {*remoting_access.REQUIREMENTS}
    # The rest is the name server's.
    assert len({*remoting_access.REQUIREMENTS} - served) == 17


@pytest.mark.parametrize("name", methods())
def test_n09_the_fields_of_each_line_exist(name: str) -> None:
    """Checks them with an empty request, which has all fields."""
    service, method = name.split("/")
    (described,) = (
        found
        for contract in CONTRACTS
        if (owner := contract.DESCRIPTOR.services_by_name.get(service)) is not None
        and (found := owner.methods_by_name.get(method)) is not None
    )
    request = getattr(
        next(each for each in CONTRACTS if hasattr(each, described.input_type.name)),
        described.input_type.name,
    )()
    for requirement in rocketpy_v1_access.REQUIREMENTS[name]:
        for resource in requirement.resources(request):
            assert isinstance(resource, Resource)


class Fields:
    """A header or body with the fields of its type: lists are empty, texts are not."""

    def __init__(self, kind: type[Struct] | None) -> None:
        self._names = {each.name: each.type for each in fields(kind)} if kind else {}

    def __getattr__(self, name: str) -> Any:
        assert name in self._names, f"{name} is no field"
        return () if "tuple" in str(self._names[name]) else "x"


@pytest.mark.parametrize("code", remoting_access.REQUIREMENTS)
def test_n09_the_fields_of_each_codes_line_exist(code: Code) -> None:
    request = SimpleNamespace(
        header=Fields(EXCHANGES[code].request.kind), body=Fields(REQUEST_BODIES.get(code))
    )
    for requirement in remoting_access.REQUIREMENTS[code]:
        for resource in requirement.resources(request):
            assert isinstance(resource, Resource)


# --- Requests ---


async def test_n09_users_send_and_read_what_they_may(secured: Secured) -> None:
    assert await secured.append(TOPIC, secured.metadata("writer")) == 0
    assert await secured.append(OTHER, secured.metadata("writer")) == NO
    assert await secured.append(TOPIC, secured.metadata("reader")) == NO
    assert await secured.append(f"%RETRY%{GROUP}", secured.metadata("writer")) == NO
    assert [secured.count(name) for name in (TOPIC, OTHER)] == [1, 0]
    reader, writer = secured.metadata("reader"), secured.metadata("writer")
    pull = secured.running.data.Pull
    cases: list[tuple[dict[str, Any], Any, int]] = [
        ({"topic": TOPIC}, reader, 0),
        ({"topic": TOPIC, "consumer_group": GROUP}, reader, 0),
        ({"topic": TOPIC, "consumer_group": "others"}, reader, NO),
        ({"topic": OTHER}, reader, NO),
        ({"topic": TOPIC}, writer, NO),
    ]
    for named, metadata, code in cases:
        request = broker_pb2.PullRequest(**named, response_bytes_max=1 << 16)
        answers = [each async for each in pull(request, metadata=metadata)]
        assert answers[0].status.code == code, named


async def test_n09_each_block_of_a_stream_is_checked(secured: Secured) -> None:
    blocks = [(name, wire_block(name, [b"x"])) for name in (TOPIC, OTHER, TOPIC)]
    requests = [
        broker_pb2.AppendRequest(
            topic=name, queue_id=0, records=block.records, record_sizes=block.record_sizes
        )
        for name, block in blocks
    ]
    call = secured.running.data.Append(iter(requests), metadata=secured.metadata("writer"))
    assert [(await call.read()).status.code for _ in requests] == [0, NO, 0]
    assert [secured.count(name) for name in (TOPIC, OTHER)] == [2, 0]


async def test_n09_a_removed_user_ends_within_a_running_stream(secured: Secured) -> None:
    block = wire_block(TOPIC, [b"x"])
    request = broker_pb2.AppendRequest(
        topic=TOPIC, queue_id=0, records=block.records, record_sizes=block.record_sizes
    )
    call = secured.running.data.Append(metadata=secured.metadata("writer"))
    await call.write(request)
    assert (await call.read()).status.code == 0
    await secured.running.broker.services.access.users.remove("writer")
    await call.write(request)
    assert (await call.read()).status.code == ResponseCode.UNAUTHENTICATED
    await call.done_writing()
    assert secured.count(TOPIC) == 1


async def test_n09_admin_calls_need_an_admin(secured: Secured) -> None:
    admin = secured.running.admin
    for name, code in (("writer", NO), ("monitor", NO), ("admin", 0)):
        metadata = secured.metadata(name)
        users = await admin.ListUsers(admin_pb2.ListUsersRequest(), metadata=metadata)
        clean = await admin.CleanUnusedTopics(
            admin_pb2.CleanUnusedTopicsRequest(), metadata=metadata
        )
        assert (users.status.code, clean.status.code) == (code, code)
    for name, code in (("writer", NO), ("monitor", 0), ("admin", 0)):
        status = await admin.GetBrokerStatus(
            admin_pb2.GetBrokerStatusRequest(), metadata=secured.metadata(name)
        )
        assert status.status.code == code
    for name in ("writer", "monitor"):
        info = await admin.GetBrokerInfo(
            admin_pb2.GetBrokerInfoRequest(), metadata=secured.metadata(name)
        )
        assert info.status.code == 0


async def test_n09_a_pattern_finds_the_topics_that_its_user_may_read(secured: Secured) -> None:
    for name, found in (("reader", [TOPIC]), ("writer", []), ("admin", [OTHER, TOPIC])):
        request = broker_pb2.QueryOffsetsRequest(topic_pattern=".*")
        answer = await secured.running.data.QueryOffsets(request, metadata=secured.metadata(name))
        assert [each.topic for each in answer.topics] == found, name
    request = broker_pb2.QueryOffsetsRequest(topics=[TOPIC, OTHER])
    answer = await secured.running.data.QueryOffsets(request, metadata=secured.metadata("reader"))
    assert (answer.status.code, list(answer.topics)) == (NO, [])


async def test_n09_a_position_in_the_log_is_no_way_to_another_topic(secured: Secured) -> None:
    theirs, ours = await sent_offset(secured, OTHER), await sent_offset(secured, TOPIC)
    for offset, code in ((theirs, NO), (ours, 0)):
        for header in (ViewMessageRequest(offset), ViewMessageRequest(offset, TOPIC)):
            answer = await secured.ask("reader", Code.VIEW_MESSAGE_BY_ID, header)
            assert answer.code == code, answer.remark
    back = await secured.ask(
        "reader", Code.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequest(theirs, GROUP, -1)
    )
    assert back.code == ResponseCode.SYSTEM_ERROR
    assert "may not read" in (back.remark or "")
    back = await secured.ask(
        "reader", Code.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequest(ours, GROUP, -1)
    )
    assert back.code == 0, back.remark
    assert secured.count(f"%DLQ%{GROUP}") == 1


async def test_n09_remoting_requests_need_their_topic_and_group(secured: Secured) -> None:
    for consumer_group, name, code in (
        (GROUP, TOPIC, ResponseCode.PULL_NOT_FOUND),
        ("others", TOPIC, NO),
        (GROUP, OTHER, NO),
        # The retry topic of another group.
        (GROUP, f"%RETRY%{GROUP}_2", NO),
    ):
        header = PullMessageRequest(consumer_group, name, 0, 0, 1, SUBSCRIPTION, subscription="*")
        for request in (Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE):
            answer = await secured.ask("reader", request, header)
            assert answer.code == code, (consumer_group, name, answer.remark)
    assert (await secured.ask("writer", Code.GET_BROKER_RUNTIME_INFO)).code == NO
    assert (await secured.ask("monitor", Code.GET_BROKER_RUNTIME_INFO)).code == 0


@pytest.mark.parametrize(
    ("producers", "consumers", "subscribed", "code"),
    [
        (["CLIENT_INNER_PRODUCER"], [GROUP], TOPIC, 0),
        (["CLIENT_INNER_PRODUCER"], [GROUP], f"%RETRY%{GROUP}", 0),
        (["producers"], [GROUP], TOPIC, NO),
        ([], ["others"], TOPIC, NO),
        ([], [GROUP], OTHER, NO),
    ],
)
async def test_n09_a_heartbeat_needs_its_groups_and_topics(
    producers: list[str], consumers: list[str], subscribed: str, code: int, secured: Secured
) -> None:
    body = HeartbeatData(
        "client",
        tuple(map(ProducerData, producers)),
        tuple(
            ConsumerData(each, subscriptions=(SubscriptionData(subscribed),)) for each in consumers
        ),
    )
    answer = await secured.ask("reader", Code.HEART_BEAT, None, encode_body(body))
    assert answer.code == code, answer.remark
    members = secured.running.broker.services.groups.clients.member_ids
    if code:
        assert secured.running.broker.services.groups.clients.client_count == 0
    else:
        assert members(GROUP) == ["client"]


async def test_n09_admin_actions_are_logged(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    request = admin_pb2.DeleteTopicRequest(topic=OTHER)
    for name in ("writer", "admin"):
        await secured.running.admin.DeleteTopic(request, metadata=secured.metadata(name))
    (line,) = [each.getMessage() for each in caplog.records if each.name.endswith(".audit")]
    assert line.startswith(
        f"user admin requested rocketpy.v1.Admin/DeleteTopic of topic {OTHER!r} "
        "from ipv4:127.0.0.1:"
    )


async def test_n09_the_producer_group_of_each_client_is_no_free_consumer_group(
    secured: Secured,
) -> None:
    header = DeleteGroupRequest(remoting_access.INNER_PRODUCER)
    answer = await secured.ask("reader", Code.DELETE_SUBSCRIPTIONGROUP, header)
    assert answer.code == NO, answer.remark


class _Entries(dict[str, Action]):
    passes = 0

    def __iter__(self) -> Iterator[str]:
        self.passes += 1
        return super().__iter__()


def test_n09_a_look_up_does_not_pass_through_all_entries() -> None:
    entries = _Entries({f"prefix-{number:04}*": Action.PUB for number in range(1_000)})
    permissions, passes = Permissions(entries), entries.passes
    assert permissions.of("prefix-0999-more") == Action.PUB
    assert permissions.of("prefix-") == Action.DENY
    assert entries.passes == passes


async def test_n09_a_foreign_client_id_gets_no_message_of_a_transaction_check(
    secured: Secured,
) -> None:
    running = secured.running
    clients = running.broker.services.groups.clients
    block = wire_block(OTHER, [b"secret"])
    check = groups_pb2.CheckTransaction(producer_group="p", record=block.records)
    heartbeat = groups_pb2.HeartbeatRequest(client_id="c", producer_groups=["p"])
    answer = await running.groups.Heartbeat(heartbeat, metadata=secured.metadata("admin"))
    assert answer.status.code == 0, answer.status.remark
    for access_key, is_sent in (("reader", False), ("admin", True)):
        request = groups_pb2.NoticesRequest(client_id="c")
        call = running.groups.Notices(request, metadata=secured.metadata(access_key))
        await call.initial_metadata()
        assert clients.notify_one_producer(check) == is_sent

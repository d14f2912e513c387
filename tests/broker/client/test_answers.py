"""Answers of every kind to the client's calls; the table's completeness is tested, too.

Each answer ends in a value or in a declared error. Answers of busy and refusing brokers are quoted,
incomplete answers are no values, and endless lists end.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

import rocketpy_broker.client
from rocketpy_broker.client import brokers, group_admin, groups, offsets, statistics, topics
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.errors import (
    CallFailedError,
    RefusedError,
    SendError,
    UnreachableError,
    UnreadableError,
)
from rocketpy_broker.client.messages import lookup, recall, retries, transactions
from rocketpy_broker.client.messages.group_reader import GroupReader
from rocketpy_broker.client.messages.model import OutgoingMessage
from rocketpy_broker.client.messages.sender import MessageSender
from rocketpy_broker.client.messages.topic_reader import TopicReader
from rocketpy_proto.record import Host, encode_offset_message_id
from rocketpy_proto.rocketpy.v1 import (
    admin_pb2,
    broker_pb2,
    common_pb2,
    groups_pb2,
    retry_pb2,
)
from tests.broker.client.test_wrong_answers import found
from tests.support.scripted_answers import GARBAGE, METHODS, AnsweringServer, Right, answering

Exercise = Callable[[BrokerConnection], object]
OFFSET_ID = encode_offset_message_id(Host.parse("127.0.0.1:10911"), 7)
MESSAGE = OutgoingMessage(b"a")
HALF = transactions.Transaction("id", "g", 1, 2)
QUEUE = groups_pb2.LockedQueue(topic="T")


def topic(name: str) -> admin_pb2.TopicConfig:
    return admin_pb2.TopicConfig(topic=name, read_queue_nums=1, write_queue_nums=1, perm=6)


def bounds(_request: object) -> Message:
    queue = broker_pb2.QueueOffsets(max_offset=1)
    return broker_pb2.QueryOffsetsResponse(
        topics=[broker_pb2.TopicOffsets(topic="T", queues=[queue])]
    )


def notices(connection: BrokerConnection) -> object:
    with groups.listening(connection, "c") as heard, connection.faults():
        return list(heard)


RIGHT: dict[str, Right] = {
    "GetBrokerInfo": lambda _: admin_pb2.GetBrokerInfoResponse(
        body_bytes_max=1 << 22, request_bytes_max=1 << 25
    ),
    "ListTopics": lambda _: admin_pb2.ListTopicsResponse(configs=[topic("T")]),
    "Append": lambda _: broker_pb2.AppendResponse(record_count=1),
    "QueryOffsets": bounds,
    "QueryConsumerOffsets": lambda _: broker_pb2.QueryConsumerOffsetsResponse(
        offsets=[broker_pb2.ConsumerOffset()]
    ),
    "Pull": lambda _: found([0], 1),
    "SearchOffsets": lambda _: broker_pb2.SearchOffsetsResponse(
        offsets=[broker_pb2.FoundOffset(found=True)]
    ),
    "SendBack": lambda _: retry_pb2.SendBackResponse(
        messages=[retry_pb2.SentBackMessage(to=retry_pb2.RETRY)]
    ),
}
# The calls of each method.
TABLE: dict[str, Exercise] = {
    "GetBrokerInfo": lambda to: to.limits,
    "GetBrokerStatus": brokers.broker_status,
    "ListTopics": lambda to: topics.get_topic(to, "T"),
    "ListTopicQueues": lambda to: list(topics.topic_queues(to, "T")),
    "ListTopicGroups": lambda to: list(offsets.topic_groups(to, "T")),
    "UpdateTopic": lambda to: topics.create_topic(to, "T", 1),
    "DeleteTopic": lambda to: topics.delete_topic(to, "T"),
    "EmptyTopic": lambda to: topics.empty_topic(to, "T"),
    "QueryMessage": lambda to: lookup.query_messages(to, "T", "k", 1),
    "ViewMessage": lambda to: lookup.view_message(to, OFFSET_ID),
    "GetStatistics": statistics.list_statistics,
    "GetStoreStatistics": statistics.store_statistics,
    "Append": lambda to: list(MessageSender(to, "T").send([MESSAGE])),
    "QueryOffsets": lambda to: offsets.query_bounds(to, "T"),
    "Pull": lambda to: list(TopicReader(to, "T").first()),
    "SearchOffsets": lambda to: offsets.offsets_at(to, "T", [0], datetime.now(timezone.utc)),
    "BackupStore": lambda to: list(brokers.backup_store(to)),
    "ListUsers": brokers.list_users,
    "Promote": brokers.promote,
    "UpdateUser": lambda to: brokers.update_user(to, admin_pb2.User(access_key="u"), create=True),
    "DeleteUser": lambda to: brokers.delete_user(to, "u"),
    "QueryConsumerOffsets": lambda to: list(GroupReader(to, "T", "g").messages()),
    "CommitOffsets": lambda to: list(GroupReader(to, "T", "g").messages()),
    "RecallMessage": lambda to: recall.recall_message(to, "T", "handle"),
    "SendBack": lambda to: retries.send_back(to, "g", OFFSET_ID),
    "EndTransaction": lambda to: transactions.end(to, HALF, commit=True),
    "ListTransactions": transactions.list_open,
    "Heartbeat": lambda to: groups.heartbeat(to, "c"),
    "Unregister": lambda to: groups.unregister(to, "c"),
    "ListMembers": lambda to: groups.list_members(to, "g"),
    "Connections": lambda to: groups.list_connections(to, "g"),
    "LockQueues": lambda to: groups.lock_queues(to, "c", "g", [QUEUE]),
    "UnlockQueues": lambda to: groups.unlock_queues(to, "c", "g", [QUEUE]),
    "Notices": notices,
    "ListGroups": lambda to: list(group_admin.list_groups(to)),
    "GetGroup": lambda to: group_admin.get_group(to, "g"),
    "ListGroupTopics": lambda to: list(group_admin.group_topics(to, "g")),
    "ListClients": lambda to: list(group_admin.list_clients(to)),
    "UpdateGroup": lambda to: group_admin.set_group(to, "g", {}),
    "DeleteGroup": lambda to: group_admin.delete_group(to, "g"),
    "ResetOffsets": lambda to: group_admin.reset_offsets(to, "g", "T", "latest"),
}
# Answers that are no values, such as the empty one where the method has to return something.
EMPTY: list[tuple[str, Exercise]] = [
    *[(name, TABLE[name]) for name in ("GetBrokerInfo", "ListTopics", "QueryOffsets", "SendBack")],
    *[(name, TABLE[name]) for name in ("ViewMessage", "QueryConsumerOffsets", "Append")],
    ("ListTopics", lambda to: topics.topic_exists(to, "T")),
    ("ListTopics", lambda to: list(MessageSender(to, "T").send([MESSAGE]))),
    ("Append", lambda to: transactions.prepare(to, "T", "g", MESSAGE)),
    ("QueryOffsets", lambda to: offsets.query_lag(to, "T", "g")),
]
# Pages that announce more entries, without the place to continue after, or with the same one.
ENDLESS: list[tuple[str, Message]] = [
    ("ListTopics", admin_pb2.ListTopicsResponse(has_more=True)),
    ("ListTopics", admin_pb2.ListTopicsResponse(configs=[topic("T")], has_more=True)),
    ("ListTopicQueues", admin_pb2.ListTopicQueuesResponse(has_more=True)),
    ("ListTopicGroups", admin_pb2.ListTopicGroupsResponse(has_more=True)),
    ("ListTopicGroups", admin_pb2.ListTopicGroupsResponse(groups=["g"], has_more=True)),
    ("GetStatistics", admin_pb2.GetStatisticsResponse(next_cursor=7)),
    ("GetStatistics", admin_pb2.GetStatisticsResponse(next_cursor=-1)),
    ("GetStoreStatistics", admin_pb2.GetStoreStatisticsResponse(has_more_topics=True)),
    ("ListGroups", groups_pb2.ListGroupsResponse(has_more=True)),
    (
        "ListGroups",
        groups_pb2.ListGroupsResponse(
            groups=[groups_pb2.GroupSummary(consumer_group="g")], has_more=True
        ),
    ),
    ("ListGroupTopics", groups_pb2.ListGroupTopicsResponse(has_more=True)),
    ("ListClients", groups_pb2.ListClientsResponse(has_more=True)),
]
LISTS: dict[str, Exercise] = {
    **TABLE,
    "ListTopics": topics.list_topics,
}


def with_status(name: str, code: int, remark: str) -> Message:
    answer: Any = GetMessageClass(METHODS[name].output_type)()
    answer.status.CopyFrom(common_pb2.Status(code=code, remark=remark))
    assert isinstance(answer, Message)
    return answer


def empty(name: str) -> Right:
    return lambda _request: GetMessageClass(METHODS[name].output_type)()


@pytest.fixture
def server() -> Iterator[AnsweringServer]:
    rights = {name: RIGHT.get(name, empty(name)) for name in METHODS}
    with answering(rights) as running:
        yield running


@pytest.fixture
def connection(server: AnsweringServer) -> Iterator[BrokerConnection]:
    with BrokerConnection(f"127.0.0.1:{server.port}") as opened:
        yield opened


def called_in_client() -> set[str]:
    """Returns the methods of the contract that the client's code names."""
    names: set[str] = {"Pull"}
    for path in Path(rocketpy_broker.client.__file__).parent.rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return names & METHODS.keys()


def test_the_table_has_every_call_of_the_client() -> None:
    assert called_in_client() == TABLE.keys()


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize(("code", "remark"), [(2, "too many requests"), (1, "no such thing")])
def test_a_refusal_is_quoted_with_its_code(
    server: AnsweringServer, connection: BrokerConnection, name: str, code: int, remark: str
) -> None:
    server.faults[name] = with_status(name, code, remark)
    with pytest.raises((RefusedError, SendError), match=rf"{remark} \(code {code}\)"):
        TABLE[name](connection)
    # The client does not keep a refused answer.
    server.faults.clear()
    assert connection.limits.body_bytes_max == 1 << 22


@pytest.mark.parametrize("name", TABLE)
def test_a_broker_that_is_away_is_named(
    server: AnsweringServer, connection: BrokerConnection, name: str
) -> None:
    server.faults[name] = grpc.StatusCode.UNAVAILABLE
    with pytest.raises((UnreachableError, SendError), match=f"at {connection.endpoint}"):
        TABLE[name](connection)


@pytest.mark.parametrize("name", TABLE)
def test_bytes_that_are_no_answer_are_a_failed_call(
    server: AnsweringServer, connection: BrokerConnection, name: str
) -> None:
    server.faults[name] = GARBAGE
    with pytest.raises((CallFailedError, SendError), match="INTERNAL"):
        TABLE[name](connection)


@pytest.mark.parametrize(("name", "exercise"), EMPTY)
def test_an_answer_that_says_nothing_is_no_value(
    server: AnsweringServer, connection: BrokerConnection, name: str, exercise: Exercise
) -> None:
    server.faults[name] = with_status(name, 0, "")
    with pytest.raises((UnreadableError, SendError)):
        exercise(connection)
    server.faults.clear()
    assert connection.limits.body_bytes_max == 1 << 22


@pytest.mark.parametrize(("name", "page"), ENDLESS)
def test_a_list_that_leads_nowhere_comes_to_an_end(
    server: AnsweringServer, connection: BrokerConnection, name: str, page: Message
) -> None:
    server.faults[name] = page
    with pytest.raises(UnreadableError, match="does not end"):
        LISTS[name](connection)
    assert server.calls[name] <= 2


def test_a_message_that_was_sent_back_to_nowhere_is_no_value(
    server: AnsweringServer, connection: BrokerConnection
) -> None:
    server.faults["SendBack"] = retry_pb2.SendBackResponse(messages=[retry_pb2.SentBackMessage()])
    with pytest.raises(UnreadableError, match="destination 0, which this client does not know"):
        TABLE["SendBack"](connection)

"""The table of routes, with the method of each.

A method of rocketpy.v1 answers each route. A route's places, such as `{topic}`, are fields of the
request, and so are the parameters of its query. A place within another message has dots, as in
`config.topic`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from types import ModuleType
from typing import Any

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from rocketpy_broker.contract_json import camel
from rocketpy_proto.model import dead_letter_topic
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2, groups_pb2, transactions_pb2

PREFIX = "/api/v1"
OFFSET_MAX = (1 << 63) - 1
# Entries of a list whose request has no number, and the most entries or messages of an answer.
PAGE_COUNT, PAGE_COUNT_MAX = 100, 1_000
# Messages of a range whose request has no end.
MESSAGES_COUNT = 32
# Bytes of records that a range of messages takes from the log; the first message has no limit.
RANGE_BYTES_MAX = 256 << 10
_CONTRACT: Mapping[str, ModuleType] = {
    "Admin": admin_pb2,
    "Broker": broker_pb2,
    "Groups": groups_pb2,
    "Transactions": transactions_pb2,
}


def method_of(rpc: str) -> MethodDescriptor:
    """Returns a method of the contract, such as `Admin/ListTopics`."""
    service, _, name = rpc.partition("/")
    found: MethodDescriptor = (
        _CONTRACT[service].DESCRIPTOR.services_by_name[service].methods_by_name[name]
    )
    return found


class Sends(Enum):
    """The message that a route sends: that of the body, or a dead letter that the path names."""

    BODY = "body"
    DEAD_LETTER = "dead letter"


@dataclass(frozen=True)
class Route:
    """A route: its HTTP method and path, the method of the contract, and the request's fields.

    - `places`: fields by the path's places, where the two have different names.
    - `query`: fields that the query may have. `fixed`: fields with the same value in each request.
    - `body`: the field whose message the body has; "" is the request itself, None is no body.
    - `entry`: the answer is the first entry of this list.
    - `finish`: completes a request.
    - `sends`: the answer is the place of a message that is sent.
    - `is_unpaged`: the answer is a list of any length.
    """

    method: str
    path: str
    rpc: str
    summary: str
    query: tuple[str, ...] = ()
    places: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, object] = field(default_factory=dict)
    body: str | None = None
    entry: str = ""
    finish: Callable[[Any], None] | None = None
    sends: Sends | None = None
    is_unpaged: bool = False

    @property
    def shown_path(self) -> str:
        """The path below PREFIX, with its places in camel case."""
        return "/".join(
            f"{{{camel(part[1:-1])}}}" if part.startswith("{") else part
            for part in self.path.split("/")
        )

    @property
    def is_action(self) -> bool:
        """True if it may change something; its body has to be JSON by its header."""
        return self.method != "GET"

    @cached_property
    def request(self) -> type[Message]:
        """The class of its requests."""
        return GetMessageClass(method_of(self.rpc).input_type)

    @cached_property
    def answer(self) -> type[Message]:
        """The class of the method's answers."""
        return GetMessageClass(method_of(self.rpc).output_type)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the path's places."""
        parts = self.path.split("/")
        return tuple(part[1:-1] for part in parts if part.startswith("{"))

    def place(self, name: str) -> str:
        """Returns the field of one of the path's places."""
        return self.places.get(name, name)


def _end_range(request: broker_pb2.PullRequest) -> None:
    """Limits a range of messages."""
    end = request.offset_end or request.offset + MESSAGES_COUNT
    request.offset_end = min(end, request.offset + PAGE_COUNT_MAX, OFFSET_MAX)
    request.response_bytes_max = RANGE_BYTES_MAX


def _of_dead_letters(request: broker_pb2.PullRequest) -> None:
    """Puts the topic of a group's dead letters in place of the group."""
    request.topic = dead_letter_topic(request.topic)
    _end_range(request)


def _of_one_letter(request: broker_pb2.PullRequest) -> None:
    request.offset_end = min(request.offset + 1, OFFSET_MAX)
    _of_dead_letters(request)


_PAGE = ("after", "count_max")
_RANGE = ("offset", "offset_end")
READS = (
    Route("GET", "/broker", "Admin/GetBrokerInfo", "The broker's version, names and limits"),
    Route("GET", "/broker/status", "Admin/GetBrokerStatus", "Disk, clients and waiting messages"),
    Route(
        "GET",
        "/broker/counters",
        "Admin/GetStoreStatistics",
        "The store's counters, and a page of topics",
        ("include_system", "topics_after"),
    ),
    Route(
        "GET",
        "/statistics",
        "Admin/GetStatistics",
        "RocketMQ's statistics of topics and groups",
        ("names", "topic", "consumer_group", "include_system", "cursor", "count_max", "keys"),
    ),
    Route(
        "GET",
        "/topics",
        "Admin/ListTopics",
        "A page of topics",
        ("include_system", "prefix", *_PAGE),
    ),
    Route(
        "GET",
        "/history",
        "Admin/GetHistory",
        "The last hour by minute: messages put and got, and the groups with the largest lags",
        ("consumer_group", "count_max"),
    ),
    Route(
        "GET",
        "/topics/{topic}",
        "Admin/ListTopics",
        "A topic's settings",
        places={"topic": "topics"},
        entry="configs",
    ),
    Route(
        "GET",
        "/topics/{topic}/queues",
        "Admin/ListTopicQueues",
        "A page of a topic's queues, from `queueId` on",
        ("queue_id", "count_max"),
    ),
    Route(
        "GET",
        "/topics/{topic}/groups",
        "Admin/ListTopicGroups",
        "A page of the groups with progress in a topic",
        _PAGE,
    ),
    Route(
        "GET",
        "/topics/{topic}/messages",
        "Admin/QueryMessage",
        "The newest messages with a key, a unique id or a tag",
        ("key", "tag", "begin_timestamp_ms", "end_timestamp_ms", "before_offset", "count_max"),
    ),
    Route(
        "GET",
        "/topics/{topic}/queues/{queue_id}/messages",
        "Broker/Pull",
        "Messages of a queue, from `offset` on",
        _RANGE,
        finish=_end_range,
    ),
    Route(
        "GET",
        "/topics/{topic}/queues/{queue_id}/offset",
        "Broker/SearchOffsets",
        "The offset of the first message stored at a time or later",
        ("queues.timestamp_ms",),
        places={"topic": "queues.topic", "queue_id": "queues.queue_id"},
        entry="offsets",
    ),
    Route(
        "GET",
        "/messages/{offset_msg_id}",
        "Admin/ViewMessage",
        "The message with an offset message id",
        entry="messages",
    ),
    Route(
        "GET",
        "/groups",
        "Groups/ListGroups",
        "A page of groups",
        ("include_system", "prefix", *_PAGE),
    ),
    Route(
        "GET",
        "/groups/{consumer_group}",
        "Groups/GetGroup",
        "A group's settings, and its numbers of retries and dead letters",
    ),
    Route(
        "GET",
        "/groups/{consumer_group}/topics",
        "Groups/ListGroupTopics",
        "A page of a group's topics, with its lag",
        _PAGE,
    ),
    Route(
        "GET",
        "/groups/{consumer_group}/topics/{topic}",
        "Broker/QueryOffsets",
        "A group's offset and lag in each queue of a topic",
        places={"topic": "topics"},
        entry="topics",
    ),
    Route(
        "GET",
        "/groups/{consumer_group}/clients",
        "Groups/Connections",
        "A group's subscriptions, and a page of its members",
        _PAGE,
        is_unpaged=True,
    ),
    Route(
        "GET",
        "/groups/{consumer_group}/dead-letters",
        "Broker/Pull",
        "Dead letters of a group, from `offset` on",
        _RANGE,
        places={"consumer_group": "topic"},
        finish=_of_dead_letters,
    ),
    Route(
        "GET",
        "/producers/{producer_group}/clients",
        "Groups/Connections",
        "A page of the clients of a producer group",
        _PAGE,
        is_unpaged=True,
    ),
    Route("GET", "/clients", "Groups/ListClients", "A page of clients, with their groups", _PAGE),
    Route(
        "GET",
        "/transactions",
        "Transactions/ListTransactions",
        "Open transactions, the oldest first",
        ("producer_group", "transaction_id", "count_max"),
    ),
)
ACTIONS = (
    Route(
        "PUT",
        "/topics/{topic}",
        "Admin/UpdateTopic",
        "Create or change a topic; `createOnly` refuses one that exists",
        ("create_only",),
        places={"topic": "config.topic"},
        body="config",
    ),
    Route(
        "DELETE",
        "/topics/{topic}",
        "Admin/DeleteTopic",
        "Delete a topic with its messages and all progress in it",
    ),
    Route(
        "POST",
        "/topics/{topic}/empty",
        "Admin/EmptyTopic",
        "Remove the messages that a topic has now; its settings and offsets stay",
    ),
    Route(
        "POST",
        "/topics/{topic}/messages",
        "Broker/Append",
        "Send a message",
        body="",
        sends=Sends.BODY,
    ),
    Route(
        "POST",
        "/broker/promote",
        "Admin/Promote",
        "Make a slave a master; `force` does so even while it is connected to its master",
        ("force", "broker_role"),
    ),
    Route(
        "PUT",
        "/groups/{consumer_group}",
        "Groups/UpdateGroup",
        "Create or change a group; `createOnly` refuses one that exists",
        ("create_only",),
        places={"consumer_group": "config.consumer_group"},
        body="config",
    ),
    Route(
        "DELETE",
        "/groups/{consumer_group}",
        "Groups/DeleteGroup",
        "Delete a group with its progress, retries and dead letters",
        ("keep_topics", "force"),
    ),
    Route(
        "POST",
        "/groups/{consumer_group}/topics/{topic}/reset",
        "Groups/ResetOffsets",
        "Move a group to another place of a topic; `dryRun` only shows it",
        body="",
    ),
    Route(
        "POST",
        "/groups/{consumer_group}/dead-letters/{offset}/resend",
        "Broker/Pull",
        "Send a dead letter to `topic`, or to that of its first send; it stays a dead letter",
        places={"consumer_group": "topic"},
        finish=_of_one_letter,
        sends=Sends.DEAD_LETTER,
    ),
    Route(
        "POST",
        "/clean/expired-files",
        "Admin/CleanExpiredFiles",
        "Remove expired log segments now",
    ),
    Route(
        "POST",
        "/clean/unused-topics",
        "Admin/CleanUnusedTopics",
        "Remove the messages of topics without configuration; `dryRun` only names the topics",
        ("dry_run",),
    ),
)
ROUTES = READS + ACTIONS

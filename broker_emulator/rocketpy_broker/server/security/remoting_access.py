"""Access by remoting: the permissions that each request code requires.

A code without a line here requires an admin. Registrations of brokers require an admin, too. Names
of topics, groups and brokers are no secret: each user may list them. Requests by a position in the
log are checked when the message is found (`services/caller.py`).
Source: DefaultAuthorizationContextBuilder, docs/design/remoting.md section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import cached_property
from typing import Any, Protocol

from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.server.security.access_control import (
    AccessControl,
    Requirement,
    Requirements,
    UserCaller,
    on_broker,
)
from rocketpy_broker.server.security.credentials import Credentials, remoting_credentials
from rocketpy_broker.server.security.errors import UnauthenticatedError
from rocketpy_broker.server.security.permissions import (
    Action,
    Resource,
    group,
    popped,
    topic,
    user,
)
from rocketpy_broker.services import caller
from rocketpy_proto.model import AUTO_CREATE_TOPIC
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.remoting import REQUEST_BODIES, RemotingCommand
from rocketpy_proto.remoting.fields import decode_bounded_body

PUB, SUB, ADMIN, EITHER = Action.PUB, Action.SUB, Action.ADMIN, Action.PUB | Action.SUB
# The most bytes of a body with names, and of one that is not plain JSON: decoding takes time.
BODY_BYTES_MAX, LENIENT_BODY_BYTES = 512 << 10, 64 << 10
# RocketMQ's Java clients register each client in this group. It ends no transactions.
INNER_PRODUCER = "CLIENT_INNER_PRODUCER"


class RemotingRequest(Protocol):
    """A request as the server hands it to processors."""

    @property
    def command(self) -> RemotingCommand:
        """The request's frame."""

    @property
    def header(self) -> Any:
        """The header as a value."""


class _Call:
    """A request; its body is decoded when a requirement reads it."""

    def __init__(self, request: RemotingRequest) -> None:
        self.header = request.header
        self._command = request.command

    @cached_property
    def body(self) -> Any:
        """The body. Raises ParameterIllegalError, RemotingFormatError."""
        command = self._command
        if len(command.body) > BODY_BYTES_MAX:
            accepted = f"{BODY_BYTES_MAX} or fewer"
            raise ParameterIllegalError("bytes of the body", len(command.body), accepted)
        kind = REQUEST_BODIES[Code(command.code)]
        return decode_bounded_body(kind, command.body, LENIENT_BODY_BYTES)


def _topic(action: Action) -> Requirement:
    """Returns the requirement for the header's topic."""

    def resources(call: _Call) -> Iterable[Resource]:
        return (topic(call.header.topic or ""),)

    return Requirement(action, resources)


def _group(action: Action, name: str, *, is_optional: bool = False) -> Requirement:
    """Returns the requirement for the header's group; an optional one may be absent."""

    def resources(call: _Call) -> Iterable[Resource]:
        found = getattr(call.header, name) or ""
        is_inner = action is PUB and found == INNER_PRODUCER
        is_left_out = (is_optional and not found) or is_inner
        return () if is_left_out else (group(found),)

    return Requirement(action, resources)


def _acknowledged(call: _Call) -> Iterable[Resource]:
    return (popped(call.header.topic, call.header.consumer_group),)


def _route(call: _Call) -> Iterable[Resource]:
    """Returns the topic of a route; a producer asks for the template of new topics, too."""
    return () if call.header.topic == AUTO_CREATE_TOPIC else (topic(call.header.topic),)


def _heartbeat_consumers(call: _Call) -> Iterable[Resource]:
    for consumer in call.body.consumers:
        yield group(consumer.group_name)
        for each in consumer.subscriptions:
            yield topic(each.topic)


def _heartbeat_producers(call: _Call) -> Iterable[Resource]:
    names = {each.group_name for each in call.body.producers} - {INNER_PRODUCER}
    return map(group, sorted(names))


def _group_of_body(call: _Call) -> Iterable[Resource]:
    return (group(call.body.consumer_group),)


def _queues_of_body(call: _Call) -> Iterable[Resource]:
    return map(topic, {queue.topic for queue in call.body.queues})


def _topic_of_body(call: _Call) -> Iterable[Resource]:
    return (topic(call.body.topic),)


def _acks_of_body(call: _Call) -> Iterable[Resource]:
    for name, of_group in {(each.topic, each.consumer_group) for each in call.body.acks}:
        yield group(of_group)
        yield popped(name, of_group)


def _user(call: _Call) -> Iterable[Resource]:
    return (user(call.header.username or ""),)


def _user_of_subject(call: _Call) -> Iterable[Resource]:
    return (user((call.header.subject or "").partition(":")[2]),)


_ANY_USER: Requirements = ()
_ADMIN, _MONITOR = on_broker(ADMIN), on_broker(Action.MONITOR)
_SEND: Requirements = (_topic(PUB),)
_OF_TOPIC: Requirements = (_topic(EITHER),)
_OF_GROUP = _group(SUB, "consumer_group")
_OF_GROUP_NAMED_SHORT = _group(SUB, "group")
_CONSUME: Requirements = (_OF_GROUP, _topic(SUB))
_ACKNOWLEDGE: Requirements = (_OF_GROUP, Requirement(SUB, _acknowledged))
_USER, _ACL = (Requirement(ADMIN, _user),), (Requirement(ADMIN, _user_of_subject),)
_LOCK = (Requirement(SUB, _group_of_body), Requirement(SUB, _queues_of_body))

REQUIREMENTS: Mapping[int, Requirements] = {
    Code.SEND_MESSAGE: _SEND,
    Code.SEND_MESSAGE_V2: _SEND,
    Code.SEND_BATCH_MESSAGE: _SEND,
    Code.SEND_REPLY_MESSAGE: _SEND,
    Code.SEND_REPLY_MESSAGE_V2: _SEND,
    Code.RECALL_MESSAGE: _SEND,
    # By a position in the log.
    Code.END_TRANSACTION: _ANY_USER,
    Code.CONSUMER_SEND_MSG_BACK: (_OF_GROUP_NAMED_SHORT,),
    Code.VIEW_MESSAGE_BY_ID: _ANY_USER,
    Code.PULL_MESSAGE: _CONSUME,
    Code.LITE_PULL_MESSAGE: _CONSUME,
    Code.POP_MESSAGE: _CONSUME,
    Code.PEEK_MESSAGE: _CONSUME,
    Code.ACK_MESSAGE: _ACKNOWLEDGE,
    Code.CHANGE_MESSAGE_INVISIBLETIME: _ACKNOWLEDGE,
    Code.NOTIFICATION: _CONSUME,
    Code.POLLING_INFO: _CONSUME,
    Code.BATCH_ACK_MESSAGE: (Requirement(SUB, _acks_of_body),),
    Code.QUERY_ASSIGNMENT: (
        Requirement(SUB, _group_of_body),
        Requirement(SUB, _topic_of_body),
    ),
    Code.SET_MESSAGE_REQUEST_MODE: (Requirement(ADMIN, _group_of_body),),
    Code.QUERY_MESSAGE: (_topic(SUB),),
    Code.QUERY_CONSUME_QUEUE: (_topic(SUB),),
    Code.GET_MAX_OFFSET: _OF_TOPIC,
    Code.GET_MIN_OFFSET: _OF_TOPIC,
    Code.GET_EARLIEST_MSG_STORETIME: _OF_TOPIC,
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _OF_TOPIC,
    Code.QUERY_CONSUMER_OFFSET: _CONSUME,
    Code.UPDATE_CONSUMER_OFFSET: _CONSUME,
    Code.INVOKE_BROKER_TO_RESET_OFFSET: (_group(ADMIN, "group"),),
    Code.GET_ALL_CONSUMER_OFFSET: _MONITOR,
    Code.GET_ALL_DELAY_OFFSET: _MONITOR,
    Code.HEART_BEAT: (
        Requirement(SUB, _heartbeat_consumers),
        # Clients of a producer group receive transaction checks, which contain messages.
        Requirement(PUB, _heartbeat_producers),
    ),
    Code.UNREGISTER_CLIENT: (
        _group(SUB, "consumer_group", is_optional=True),
        _group(PUB, "producer_group", is_optional=True),
    ),
    Code.CHECK_CLIENT_CONFIG: _ANY_USER,
    Code.LOCK_BATCH_MQ: _LOCK,
    Code.UNLOCK_BATCH_MQ: _LOCK,
    Code.GET_CONSUMER_LIST_BY_GROUP: (_OF_GROUP,),
    Code.GET_CONSUMER_CONNECTION_LIST: (_OF_GROUP,),
    Code.GET_PRODUCER_CONNECTION_LIST: (_group(PUB, "producer_group"),),
    Code.GET_CONSUMER_RUNNING_INFO: (_group(ADMIN, "consumer_group"),),
    # It sends a message of any topic.
    Code.CONSUME_MESSAGE_DIRECTLY: _ADMIN,
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: (_group(ADMIN, "group"),),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: (
        Requirement(ADMIN, lambda call: (group(call.body.group),)),
    ),
    Code.DELETE_SUBSCRIPTIONGROUP: (_group(ADMIN, "group_name"),),
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _MONITOR,
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: (_OF_GROUP_NAMED_SHORT,),
    Code.GET_CONSUME_STATS: (_OF_GROUP,),
    Code.GET_BROKER_CONSUME_STATS: _MONITOR,
    Code.QUERY_CONSUME_TIME_SPAN: (_OF_GROUP_NAMED_SHORT, _topic(SUB)),
    Code.QUERY_TOPICS_BY_CONSUMER: (_OF_GROUP_NAMED_SHORT,),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: (_OF_GROUP_NAMED_SHORT,),
    Code.UPDATE_AND_CREATE_TOPIC: (_topic(ADMIN),),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: _ADMIN,
    Code.DELETE_TOPIC_IN_BROKER: (_topic(ADMIN),),
    Code.GET_ALL_TOPIC_CONFIG: _MONITOR,
    Code.GET_TOPIC_CONFIG: _OF_TOPIC,
    Code.GET_TOPIC_STATS_INFO: _OF_TOPIC,
    Code.QUERY_TOPIC_CONSUME_BY_WHO: _OF_TOPIC,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _ANY_USER,
    Code.GET_BROKER_RUNTIME_INFO: _MONITOR,
    Code.GET_REPLICATION_STATE: _MONITOR,
    Code.GET_PROGRESS_FILE: _ADMIN,
    Code.GET_STAGED_FILES: _ADMIN,
    Code.READ_STAGED_FILE: _ADMIN,
    Code.GET_BROKER_HA_STATUS: _MONITOR,
    Code.VIEW_BROKER_STATS_DATA: _MONITOR,
    Code.GET_BROKER_CONFIG: _ADMIN,
    Code.UPDATE_BROKER_CONFIG: _ADMIN,
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: _ADMIN,
    Code.DELETE_EXPIRED_COMMITLOG: _ADMIN,
    Code.CLEAN_UNUSED_TOPIC: _ADMIN,
    Code.POP_ROLLBACK: _ADMIN,
    Code.AUTH_CREATE_USER: _USER,
    Code.AUTH_UPDATE_USER: _USER,
    Code.AUTH_DELETE_USER: _USER,
    Code.AUTH_GET_USER: _USER,
    Code.AUTH_LIST_USER: _ADMIN,
    Code.AUTH_CREATE_ACL: _ACL,
    Code.AUTH_UPDATE_ACL: _ACL,
    Code.AUTH_DELETE_ACL: _ACL,
    Code.AUTH_GET_ACL: _ACL,
    Code.AUTH_LIST_ACL: _ADMIN,
    # --- Of the name server ---
    Code.GET_ROUTEINFO_BY_TOPIC: (Requirement(EITHER, _route),),
    Code.GET_BROKER_CLUSTER_INFO: _ANY_USER,
    Code.GET_BROKER_MEMBER_GROUP: _ANY_USER,
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _ANY_USER,
    Code.GET_TOPICS_BY_CLUSTER: _ANY_USER,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: _ANY_USER,
    Code.GET_KV_CONFIG: _ANY_USER,
    Code.GET_KVLIST_BY_NAMESPACE: _ANY_USER,
    Code.REGISTER_BROKER: _ADMIN,
    Code.UNREGISTER_BROKER: _ADMIN,
    Code.QUERY_DATA_VERSION: _ADMIN,
    Code.REGISTER_TOPIC_IN_NAMESRV: _ADMIN,
    Code.DELETE_TOPIC_IN_NAMESRV: (_topic(ADMIN),),
    Code.WIPE_WRITE_PERM_OF_BROKER: _ADMIN,
    Code.ADD_WRITE_PERM_OF_BROKER: _ADMIN,
    Code.PUT_KV_CONFIG: _ADMIN,
    Code.DELETE_KV_CONFIG: _ADMIN,
}


class RemotingDeniedError(UnauthenticatedError):
    """A refused signature, with the code that RocketMQ's clients know."""

    code = ResponseCode.NO_PERMISSION


class RemotingAccess:
    """The checks of remoting requests, made before their processor runs."""

    def __init__(self, control: AccessControl) -> None:
        self._control = control

    @property
    def is_on(self) -> bool:
        """True if requests need a user."""
        return self._control.is_on

    def step(
        self,
        request: RemotingRequest,
        peer: str,
        processor: Callable[[Any], Any],
    ) -> Any:
        """Returns the processor's step for a permitted request.

        After failed attempts it is a coroutine that waits first. Raises RemotingDeniedError,
        NoPermissionError, ParameterIllegalError, RemotingFormatError.
        """
        credentials = remoting_credentials(request.command)
        try:
            wait_ms = self._control.wait_ms(credentials, peer)
        except UnauthenticatedError as error:
            raise RemotingDeniedError(error.remark) from error
        if wait_ms > 0:
            return self._later(wait_ms, credentials, request, peer, processor)
        self._check(credentials, request, peer)
        return processor(request)

    async def _later(
        self,
        wait_ms: float,
        credentials: Credentials | None,
        request: RemotingRequest,
        peer: str,
        processor: Callable[[Any], Any],
    ) -> Any:
        await self._control.wait(wait_ms, peer)
        self._check(credentials, request, peer)
        step = processor(request)
        # A coroutine of the processor must run in this context, which has the user.
        return await step if isinstance(step, Coroutine) else step

    def _check(self, credentials: Credentials | None, request: RemotingRequest, peer: str) -> None:
        try:
            principal = self._control.principal(credentials, peer)
        except UnauthenticatedError as error:
            raise RemotingDeniedError(error.remark) from error
        code = request.command.code
        requirements = REQUIREMENTS.get(code, _ADMIN)
        caller.current.set(UserCaller(self._control, principal))
        self._control.check(principal, requirements, _Call(request), Code(code).name, peer)

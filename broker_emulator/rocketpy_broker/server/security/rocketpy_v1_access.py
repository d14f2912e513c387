"""Access to rocketpy.v1: the permissions that each method requires.

A method without a line here requires an admin. Names of topics and groups are no secret: each user
may list them. Requests by a position in the log are checked when the message is found
(`services/caller.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rocketpy_broker.server.calls import writes
from rocketpy_broker.server.security.access_control import (
    AccessControl,
    Requirement,
    Requirements,
    on_broker,
)
from rocketpy_broker.server.security.credentials import Credentials, bearer_credentials
from rocketpy_broker.server.security.permissions import (
    Action,
    Principal,
    Resource,
    ResourceType,
    group,
    topic,
    user,
)
from rocketpy_proto.bearer_token import AUTHORIZATION

Resources = Callable[[Any], Iterable[Resource]]
PUB, SUB, ADMIN, EITHER = Action.PUB, Action.SUB, Action.ADMIN, Action.PUB | Action.SUB


def _topics(action: Action, entries: str, name: str = "topic") -> Requirement:
    """Returns the requirement for the topics of a list of messages, or of texts without `name`."""

    def resources(request: Any) -> Iterable[Resource]:
        found = getattr(request, entries)
        return map(topic, {getattr(each, name) for each in found} if name else set(found))

    return Requirement(action, resources)


def _topic(action: Action, name: str = "topic", *, is_optional: bool = False) -> Requirement:
    """Returns the requirement for a request's topic; an optional one may be empty."""

    def resources(request: Any) -> Iterable[Resource]:
        found = getattr(request, name)
        return () if is_optional and not found else (topic(found),)

    return Requirement(action, resources)


def _group(action: Action, name: str, *, is_optional: bool = False) -> Requirement:
    """Returns the requirement for a request's group; an optional one may be empty."""

    def resources(request: Any) -> Iterable[Resource]:
        found = getattr(request, name)
        return () if is_optional and not found else (group(found),)

    return Requirement(action, resources)


def _heartbeat_topics(request: Any) -> Iterable[Resource]:
    for consumer in request.consumers:
        yield group(consumer.consumer_group)
        for each in consumer.subscriptions:
            yield topic(each.topic)


_ANY_USER: Requirements = ()
_ADMIN, _MONITOR = on_broker(ADMIN), on_broker(Action.MONITOR)
_READ_GROUP = _group(SUB, "consumer_group")
_MAY_READ_GROUP = _group(SUB, "consumer_group", is_optional=True)
_QUEUES = (_READ_GROUP, _topics(SUB, "queues"))

REQUIREMENTS: Mapping[str, Requirements] = {
    "Broker/Append": (_topic(PUB),),
    "Broker/Pull": (_topic(SUB), _MAY_READ_GROUP),
    "Broker/CheckFilter": _ANY_USER,
    # A request without records has no topic.
    "Broker/StageBlocks": (_topic(PUB, is_optional=True),),
    # The job's token, which only its writer knows, protects a batch.
    "Broker/CommitBatch": _ANY_USER,
    "Broker/QueryBatch": _ANY_USER,
    "Broker/AbortBatch": _ANY_USER,
    # A pattern matches the topics that the user may read.
    "Broker/QueryOffsets": (_topics(SUB, "topics", ""), _MAY_READ_GROUP),
    "Broker/SearchOffsets": (_topics(SUB, "queues"),),
    "Broker/FindKeys": (_topics(SUB, "ranges"),),
    "Broker/MeasureRanges": (_topics(SUB, "ranges"),),
    "Broker/LimitRanges": (_topics(SUB, "ranges"),),
    "Broker/QueryConsumerOffsets": _QUEUES,
    "Broker/CommitOffsets": (_READ_GROUP, _topics(SUB, "offsets")),
    "Broker/RecallMessage": (_topic(PUB),),
    "Admin/UpdateTopic": (Requirement(ADMIN, lambda request: (topic(request.config.topic),)),),
    "Admin/DeleteTopic": (_topic(ADMIN),),
    "Admin/EmptyTopic": (_topic(ADMIN),),
    "Admin/ListTopics": _ANY_USER,
    "Admin/ListTopicGroups": (_topic(EITHER),),
    "Admin/ListTopicQueues": (_topic(EITHER),),
    "Admin/GetBrokerInfo": _ANY_USER,
    "Admin/GetBrokerStatus": _MONITOR,
    "Admin/QueryMessage": (_topic(SUB),),
    # By a position in the log.
    "Admin/ViewMessage": _ANY_USER,
    "Admin/GetStoreStatistics": _MONITOR,
    "Admin/GetStatistics": _MONITOR,
    "Admin/GetHistory": _MONITOR,
    "Admin/CleanExpiredFiles": _ADMIN,
    "Admin/CleanUnusedTopics": _ADMIN,
    "Admin/BackupStore": _ADMIN,
    "Admin/Promote": _ADMIN,
    "Admin/UpdateUser": (Requirement(ADMIN, lambda request: (user(request.user.access_key),)),),
    "Admin/DeleteUser": (Requirement(ADMIN, lambda request: (user(request.access_key),)),),
    "Admin/ListUsers": _ADMIN,
    "Groups/Heartbeat": (
        Requirement(SUB, _heartbeat_topics),
        # Clients of a producer group receive transaction checks, which contain messages.
        Requirement(PUB, lambda request: map(group, request.producer_groups)),
    ),
    "Groups/Unregister": (
        _MAY_READ_GROUP,
        _group(PUB, "producer_group", is_optional=True),
    ),
    "Groups/ListMembers": (_READ_GROUP,),
    "Groups/Connections": (
        _MAY_READ_GROUP,
        _group(PUB, "producer_group", is_optional=True),
    ),
    "Groups/LockQueues": _QUEUES,
    "Groups/UnlockQueues": _QUEUES,
    # They are about groups in heartbeats of the client id; the heartbeats were checked.
    "Groups/Notices": _ANY_USER,
    "Groups/ListGroups": _ANY_USER,
    "Groups/GetGroup": (_READ_GROUP,),
    "Groups/ListGroupTopics": (_READ_GROUP,),
    "Groups/UpdateGroup": (
        Requirement(ADMIN, lambda request: (group(request.config.consumer_group),)),
    ),
    "Groups/DeleteGroup": (_group(ADMIN, "consumer_group"),),
    "Groups/ResetOffsets": (_group(ADMIN, "consumer_group"),),
    "Groups/ListClients": _MONITOR,
    # By a position in the log.
    "Transactions/EndTransaction": _ANY_USER,
    "Transactions/ListTransactions": _MONITOR,
    "Retry/SendBack": (_READ_GROUP,),
    "Testing/AdvanceClock": _ADMIN,
    "Testing/ForgetWriters": _ADMIN,
}
_PREFIX = "/rocketpy.v1."


@dataclass(frozen=True, slots=True)
class Rights:
    """The permissions of a user at one time. Without users each request is allowed.

    `slave_refusal` is the reason why a slave refuses writes; None at a master.
    """

    principal: Principal | None = None
    slave_refusal: str | None = None

    def allows(self, rpc: str, request: Any) -> bool:
        """True if the request would be allowed.

        A topic or group without a name counts as allowed if the user may use at least one.
        """
        if self.slave_refusal is not None and rpc in writes.ROCKETPY_V1:
            return False
        return self.principal is None or all(
            self._granted(self.principal, resource) & each.action
            for each in REQUIREMENTS.get(rpc, _ADMIN)
            for resource in each.resources(request)
        )

    def _granted(self, principal: Principal, resource: Resource) -> Action:
        if resource.name or resource.type not in (ResourceType.TOPIC, ResourceType.GROUP):
            return principal.granted(resource)
        return principal.granted_somewhere(resource.type)


class RocketpyV1Access:
    """The checks of rocketpy.v1, which the call guard makes."""

    def __init__(
        self,
        control: AccessControl,
        credentials_of: Callable[[str], Credentials | None] = bearer_credentials,
    ) -> None:
        """Reads the metadata `authorization` with `credentials_of`."""
        self._control = control
        self._credentials_of = credentials_of

    async def admitted(
        self, method: str, metadata: Iterable[tuple[str, str | bytes]], peer: str
    ) -> Callable[[Any], None]:
        """Returns the check of each request of a call.

        Raises UnauthenticatedError, StoreClosedError.
        """
        name = method.removeprefix(_PREFIX)
        check = await self._check(name, metadata, peer)
        if name in writes.ROCKETPY_V1:
            self._control.check_write()
        return check

    async def _check(
        self, name: str, metadata: Iterable[tuple[str, str | bytes]], peer: str
    ) -> Callable[[Any], None]:
        control = self._control
        if not control.is_on:
            return control.check_off
        requirements = REQUIREMENTS.get(name, _ADMIN)
        return await control.admitted(
            self._credentials(metadata), requirements, _PREFIX + name, peer
        )

    async def rights(self, metadata: Iterable[tuple[str, str | bytes]], peer: str) -> Rights:
        """Returns the permissions of a user, after the wait for earlier failures.

        Raises UnauthenticatedError.
        """
        control, principal = self._control, None
        if control.is_on:
            principal = await control.authenticate(self._credentials(metadata), peer)
        return Rights(principal, control.slave_refusal)

    def _credentials(self, metadata: Iterable[tuple[str, str | bytes]]) -> Credentials | None:
        text = next((value for name, value in metadata if name == AUTHORIZATION), "")
        return self._credentials_of(text) if isinstance(text, str) else None

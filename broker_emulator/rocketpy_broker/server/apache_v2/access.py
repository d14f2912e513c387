"""Access to apache.rocketmq.v2: the permissions that each method requires.

A method that is not in REQUIREMENTS requires an admin. Permissions name topics and groups as the
broker does, with their namespace.
Source: DefaultAuthorizationContextBuilder, docs/design/grpc_v2_semantics.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rocketpy_broker.server.apache_v2.request_context import NAMESPACE, broker_name, headers_of
from rocketpy_broker.server.calls import writes
from rocketpy_broker.server.security.access_control import (
    AccessControl,
    Requirement,
    Requirements,
    on_broker,
)
from rocketpy_broker.server.security.credentials import mqv2_credentials
from rocketpy_broker.server.security.permissions import (
    Action,
    Resource,
    group,
    popped,
    topic,
)

PUB, SUB, EITHER = Action.PUB, Action.SUB, Action.PUB | Action.SUB


@dataclass(frozen=True, slots=True)
class _Call:
    """A request, and the namespace of its header."""

    request: Any
    namespace: str

    def name(self, resource: Any) -> str:
        """Returns the broker's name of a topic or group."""
        return broker_name(self.namespace, resource)


def _topic(action: Action) -> Requirement:
    return Requirement(action, lambda call: (topic(call.name(call.request.topic)),))


def _read_topic(path: str) -> Requirement:
    """Returns the requirement to read the topic at a path of fields."""

    def resources(call: _Call) -> Iterable[Resource]:
        found = call.request
        for name in path.split("."):
            found = getattr(found, name)
        return (topic(call.name(found)),)

    return Requirement(SUB, resources)


def _group(call: _Call) -> Iterable[Resource]:
    return (group(call.name(call.request.group)),)


def _group_if_set(call: _Call) -> Iterable[Resource]:
    return _group(call) if call.request.group.name else ()


def _popped_topic(call: _Call) -> Iterable[Resource]:
    return (popped(call.name(call.request.topic), call.name(call.request.group)),)


def _sent_topics(call: _Call) -> Iterable[Resource]:
    return map(topic, sorted({call.name(each.topic) for each in call.request.messages}))


def _published(call: _Call) -> Iterable[Resource]:
    publishing = call.request.settings.publishing
    return map(topic, sorted({call.name(each) for each in publishing.topics}))


def _subscribed(call: _Call) -> Iterable[Resource]:
    subscription = call.request.settings.subscription
    of_group = call.name(subscription.group)
    if of_group:
        yield group(of_group)
    for name in sorted({call.name(each.topic) for each in subscription.subscriptions}):
        yield topic(name)


_READ_GROUP = Requirement(SUB, _group)
_READ = (_READ_GROUP, _read_topic("topic"))
_POPPED = (_READ_GROUP, Requirement(SUB, _popped_topic))
_READ_QUEUE = (_READ_GROUP, _read_topic("message_queue.topic"))
REQUIREMENTS: Mapping[str, Requirements] = {
    "QueryRoute": (_topic(EITHER),),
    "Heartbeat": (Requirement(SUB, _group_if_set),),
    "SendMessage": (Requirement(PUB, _sent_topics),),
    "QueryAssignment": _READ,
    "ReceiveMessage": _READ_QUEUE,
    "AckMessage": _POPPED,
    "ChangeInvisibleDuration": _POPPED,
    "ForwardMessageToDeadLetterQueue": _POPPED,
    "PullMessage": _READ_QUEUE,
    "UpdateOffset": _READ_QUEUE,
    "GetOffset": _READ_QUEUE,
    "QueryOffset": (
        Requirement(SUB, lambda call: (topic(call.name(call.request.message_queue.topic)),)),
    ),
    "EndTransaction": (_topic(PUB),),
    "RecallMessage": (_topic(PUB),),
    "Telemetry": (Requirement(PUB, _published), Requirement(SUB, _subscribed)),
    "NotifyClientTermination": (Requirement(SUB, _group_if_set),),
    # Not supported, whatever the user.
    "SyncLiteSubscription": (),
}
_ADMIN = on_broker(Action.ADMIN)


class ApacheV2Access:
    """The checks of apache.rocketmq.v2, which the call guard makes."""

    def __init__(self, control: AccessControl) -> None:
        self._control = control

    async def admitted(
        self, method: str, metadata: Iterable[tuple[str, str | bytes]], peer: str
    ) -> Callable[[Any], None]:
        """Returns the check of each request of a call.

        Raises UnauthenticatedError, StoreClosedError.
        """
        check = await self._check(method, metadata, peer)
        if method.rpartition("/")[2] in writes.APACHE_V2:
            self._control.check_write()
        return check

    async def _check(
        self, method: str, metadata: Iterable[tuple[str, str | bytes]], peer: str
    ) -> Callable[[Any], None]:
        control = self._control
        if not control.is_on:
            return control.check_off
        headers = headers_of(metadata)
        requirements = REQUIREMENTS.get(method.rpartition("/")[2], _ADMIN)
        namespace = headers.get(NAMESPACE, "")
        credentials = mqv2_credentials(headers)
        return await control.admitted(
            credentials, requirements, method, peer, lambda request: _Call(request, namespace)
        )

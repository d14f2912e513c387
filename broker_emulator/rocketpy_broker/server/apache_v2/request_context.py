"""The caller of a request: its client, namespace and deadline.

A resource of namespace `ns` has the broker's name `ns%name`, as in RocketMQ's classic clients. The
namespace is the resource's own, or else the one of the header `x-mq-namespace`.
Source: ContextInitPipeline, NamespaceUtil, docs/design/grpc_v2_semantics.md sections 2 and 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

import grpc

from rocketpy_broker.server.apache_v2.status import StatusError
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.model import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rocketpy_proto.model.codes import Language

if TYPE_CHECKING:
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

CLIENT_ID, NAMESPACE = "x-mq-client-id", "x-mq-namespace"
LANGUAGE, VERSION = "x-mq-language", "x-mq-client-version"
SEPARATOR = "%"
_TEXT_CHARACTERS_MAX = 255
# Names of languages that RocketMQ's table of languages does not have.
_LANGUAGES = {"GOLANG": Language.GO, "DOT_NET": Language.DOTNET}


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The caller of a request; `address` is host:port of the connection.

    `remaining_ms` is the time until the client's deadline when the request came; None without one.
    """

    client_id: str
    language: Language
    version: str
    namespace: str
    address: str
    remaining_ms: float | None

    @classmethod
    def of(cls, context: Context) -> RequestContext:
        """Returns the caller of a call; its client id is empty if the call has none."""
        headers = headers_of(context.invocation_metadata() or ())
        remaining: Any = context.time_remaining()
        return cls(
            headers.get(CLIENT_ID, ""),
            _language(headers.get(LANGUAGE, "")),
            headers.get(VERSION, "")[:_TEXT_CHARACTERS_MAX],
            headers.get(NAMESPACE, ""),
            # gRPC writes `ipv4:127.0.0.1:50123` or `ipv6:%5B::1%5D:50123`.
            unquote(context.peer()).partition(":")[2],
            None if remaining is None else remaining * 1000,
        )

    def check_client_id(self) -> None:
        """Raises StatusError if the call has no client id, or one that is too long to keep."""
        if not self.client_id:
            raise StatusError(v2.CLIENT_ID_REQUIRED, f"the header {CLIENT_ID} is missing; send it")
        if len(self.client_id) > _TEXT_CHARACTERS_MAX:
            raise StatusError(
                v2.BAD_REQUEST,
                f"the header {CLIENT_ID} has {len(self.client_id)} characters, limit "
                f"{_TEXT_CHARACTERS_MAX}. Use a shorter client id",
            )

    def name_of(self, resource: v2.Resource) -> str:
        """Returns the broker's name of a topic or group of the request."""
        return broker_name(self.namespace, resource)

    def resource(self, name: str) -> v2.Resource:
        """Returns the client's form of a broker's name, in the namespace of its header."""
        return resource_in(self.namespace, name)


def headers_of(metadata: Iterable[tuple[str, str | bytes]]) -> dict[str, str]:
    """Returns the text headers of metadata.

    Permission checks and methods both use the first value of a repeated header.
    """
    headers = dict[str, str]()
    for key, value in metadata:
        if isinstance(value, str):
            headers.setdefault(key, value.strip())
    return headers


def broker_name(namespace: str, resource: v2.Resource) -> str:
    """Returns the broker's name of a resource, for permission checks and for methods."""
    return with_namespace(resource.resource_namespace or namespace, resource.name)


def resource_in(namespace: str, name: str) -> v2.Resource:
    """Returns the resource of a broker's name, in `namespace` if the name has it."""
    plain = without_namespace(namespace, name)
    return v2.Resource(resource_namespace="" if plain == name else namespace, name=plain)


def with_namespace(namespace: str, name: str) -> str:
    """Returns the broker's name of a topic or group; `%RETRY%` and `%DLQ%` stay in front."""
    prefix, rest = _parts(name)
    if not namespace or not rest or rest.startswith(namespace + SEPARATOR):
        return name
    return f"{prefix}{namespace}{SEPARATOR}{rest}"


def without_namespace(namespace: str, name: str) -> str:
    """Returns a broker's name without this namespace."""
    prefix, rest = _parts(name)
    return prefix + rest.removeprefix(namespace + SEPARATOR) if namespace else name


def _parts(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return "", name


def _language(name: str) -> Language:
    known = name.upper()
    return _LANGUAGES.get(known) or Language.__members__.get(known, Language.OTHER)

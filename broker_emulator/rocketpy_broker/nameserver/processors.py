"""Requests of brokers, clients and operators to a name server.

Source: DefaultRequestProcessor and ClientRequestProcessor, docs/design/cluster.md section 3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from rocketpy_broker.errors import AnswerTooLargeError
from rocketpy_broker.nameserver.errors import RegistrationError
from rocketpy_broker.nameserver.kv_config import ORDER_TOPIC_CONFIG, KVConfig
from rocketpy_broker.nameserver.own_broker import OwnBroker
from rocketpy_broker.nameserver.route_table import STEP_TOPICS, RouteTable
from rocketpy_broker.nameserver.steps import in_steps
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.server.remoting.server import SMALL_BODY_BYTES, Processor, Request
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.remoting import FRAME_BYTES_MAX, RemotingCommand, encode_body
from rocketpy_proto.remoting.bodies.configs import TopicConfigTable
from rocketpy_proto.remoting.bodies.registration import (
    RegisterBrokerBody,
    body_crc32,
    decode_compressed,
)
from rocketpy_proto.remoting.bodies.routes import (
    BrokerMemberGroupBody,
    TextTable,
    TopicList,
    encode_with_number_keys,
)
from rocketpy_proto.remoting.headers.cluster import (
    AddWritePermResponse,
    KVConfigResponse,
    QueryDataVersionResponse,
    WipeWritePermResponse,
)

# 4.9.4: the first version whose clients read standard JSON.
STANDARD_JSON_VERSION = 401
# A larger body is decoded in a thread, and so is a compressed one.
LARGE_BODY_BYTES = 65_536
# A thread encodes more names: that takes more than some milliseconds.
SLOT_TOPICS = 20_000
# The limit for a topic's queues in a request; the queues at all brokers take less.
QUEUES_BYTES_MAX = 1 << 20


class NameServerProcessors:
    """The processors of a name server, by request code."""

    def __init__(
        self,
        routes: RouteTable,
        kv_config: KVConfig,
        own: OwnBroker | None = None,
        *,
        is_order_served: bool,
    ) -> None:
        """Takes in `is_order_served`: True adds the configuration of ordered topics to routes."""
        self._own = own
        self._routes = routes
        self._kv_config = kv_config
        self._is_order_served = is_order_served

    def by_code(self) -> Mapping[int, Processor]:
        """Returns the processors."""
        return {
            Code.REGISTER_BROKER: self._register,
            Code.UNREGISTER_BROKER: self._unregister,
            Code.QUERY_DATA_VERSION: self._data_version,
            Code.GET_ROUTEINFO_BY_TOPIC: self._route,
            Code.GET_BROKER_CLUSTER_INFO: self._cluster_info,
            Code.GET_BROKER_MEMBER_GROUP: self._members,
            Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._topics,
            Code.GET_TOPICS_BY_CLUSTER: self._topics_of_cluster,
            Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._system_topics,
            Code.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            Code.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            Code.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm,
            Code.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm,
            Code.PUT_KV_CONFIG: self._put,
            Code.GET_KV_CONFIG: self._get,
            Code.DELETE_KV_CONFIG: self._delete,
            Code.GET_KVLIST_BY_NAMESPACE: self._namespace,
        }

    # --- Brokers ---

    async def _register(self, request: Request) -> RemotingCommand:
        if self._own is not None:
            self._own.check_other(request.header, request.connection)
        is_large = len(request.command.body) > LARGE_BODY_BYTES
        if not is_large and not request.header.is_compressed:
            topics = _topics_in(request)
        else:
            topics = await asyncio.to_thread(_topics_in, request)
        if not request.connection.is_open:
            raise RegistrationError("the connection ended before the registration; register again")
        found = await in_steps(self._routes.register(request.header, topics, request.connection))
        if self._own is not None:
            found = self._own.answered(request.header, request.connection) or found
        ordered = self._kv_config.namespace(ORDER_TOPIC_CONFIG)
        return request.answer(found, body=encode_body(TextTable(ordered)) if ordered else b"")

    def _unregister(self, request: Request) -> RemotingCommand:
        if self._own is not None:
            self._own.check_other(request.header, request.connection)
        self._routes.unregister(request.header, request.connection)
        return request.answer()

    async def _data_version(self, request: Request) -> RemotingCommand:
        asked = await request.bounded_body(SMALL_BODY_BYTES)
        known = self._routes.data_version(request.header)
        changed = QueryDataVersionResponse(known is None or known != asked)
        return request.answer(changed, body=b"" if known is None else encode_body(known))

    # --- Routes ---

    def _route(self, request: Request) -> RemotingCommand:
        topic = request.header.topic
        route = self._routes.route(topic)
        if (own := self._own) is not None:
            datas = tuple(own.seen(each, request.connection) for each in route.broker_datas)
            route = msgspec.structs.replace(route, broker_datas=datas)
        if self._is_order_served:
            order = self._kv_config.get(ORDER_TOPIC_CONFIG, topic)
            route = msgspec.structs.replace(route, order_topic_conf=order)
        is_standard = (
            request.header.is_standard_json_only or request.command.version >= STANDARD_JSON_VERSION
        )
        encode = encode_body if is_standard else encode_with_number_keys
        return request.answer(body=encode(route))

    def _cluster_info(self, request: Request) -> RemotingCommand:
        info = self._routes.cluster_info()
        if (own := self._own) is not None:
            table = info.broker_addr_table.items()
            seen = {name: own.seen(data, request.connection) for name, data in table}
            info = msgspec.structs.replace(info, broker_addr_table=seen)
        return request.answer(body=encode_with_number_keys(info))

    def _members(self, request: Request) -> RemotingCommand:
        header = request.header
        group = self._routes.members(header.cluster_name, header.broker_name)
        if self._own is not None:
            group = self._own.member_addresses(group, request.connection)
        return request.answer(body=encode_with_number_keys(BrokerMemberGroupBody(group)))

    # --- Topics ---

    async def _topics(self, request: Request) -> RemotingCommand:
        return await _listed(request, self._routes.topics)

    async def _topics_of_cluster(self, request: Request) -> RemotingCommand:
        names = self._routes.topics_of_cluster(request.header.cluster)
        return await _listed(request, await in_steps(names))

    async def _system_topics(self, request: Request) -> RemotingCommand:
        names, address = self._routes.system_topics()
        if self._own is not None:
            address = self._own.address(request.connection)
        return await _listed(request, names, address)

    async def _register_topic(self, request: Request) -> RemotingCommand:
        body = await request.bounded_body(QUEUES_BYTES_MAX)
        self._routes.register_topic(request.header.topic, body.queue_datas)
        return request.answer()

    def _delete_topic(self, request: Request) -> RemotingCommand:
        self._routes.delete_topic(request.header.topic, request.header.cluster_name)
        return request.answer()

    async def _wipe_write_perm(self, request: Request) -> RemotingCommand:
        steps = self._routes.set_writable(request.header.broker_name, is_writable=False)
        return request.answer(WipeWritePermResponse(await in_steps(steps)))

    async def _add_write_perm(self, request: Request) -> RemotingCommand:
        steps = self._routes.set_writable(request.header.broker_name, is_writable=True)
        return request.answer(AddWritePermResponse(await in_steps(steps)))

    # --- Key-value configuration ---

    async def _put(self, request: Request) -> RemotingCommand:
        header = request.header
        await self._kv_config.put(header.namespace, header.key, header.value)
        return request.answer()

    def _get(self, request: Request) -> RemotingCommand:
        header = request.header
        value = self._kv_config.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace:.200} Key: {header.key:.200}"
            return request.command.answer(ResponseCode.QUERY_NOT_FOUND, remark=remark)
        return request.answer(KVConfigResponse(value))

    async def _delete(self, request: Request) -> RemotingCommand:
        await self._kv_config.delete(request.header.namespace, request.header.key)
        return request.answer()

    def _namespace(self, request: Request) -> RemotingCommand:
        table = self._kv_config.namespace(request.header.namespace)
        if table is None:
            remark = f"No config item, Namespace: {request.header.namespace:.200}"
            return request.command.answer(ResponseCode.QUERY_NOT_FOUND, remark=remark)
        return request.answer(body=encode_body(TextTable(table)))


def _topics_in(request: Request) -> TopicConfigTable | None:
    """Returns the topics of a registration; None without a body.

    Raises RegistrationError, RemotingFormatError.
    """
    header, data = request.header, bytes(request.command.body)
    if header.body_crc32 and header.body_crc32 != body_crc32(data):
        raise RegistrationError("crc32 not match")
    if not data:
        return None
    read = decode_compressed(data) if header.is_compressed else request.body()
    assert isinstance(read, RegisterBrokerBody)
    return read.topics


async def _listed(
    request: Request, names: Sequence[str], address: str | None = None
) -> RemotingCommand:
    """Returns an answer with names.

    More than STEP_TOPICS names take a scheduler slot; a thread encodes more than SLOT_TOPICS. It
    does not encode shorter lists: many threads would keep the GIL from the event loop.
    """
    topics = TopicList(tuple(names), address)
    if sum(map(len, names)) > FRAME_BYTES_MAX:
        raise AnswerTooLargeError("the list of topics", FRAME_BYTES_MAX)
    if len(names) > SLOT_TOPICS:
        return request.answer(body=await asyncio.to_thread(encode_body, topics))
    if len(names) > STEP_TOPICS:
        await take_slot("topics")
    return request.answer(body=encode_body(topics))

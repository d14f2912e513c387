"""Methods that store messages, and recall delayed ones.

Each message is stored on its own, in the order of the request, and has an entry in the response.
Source: SendMessageActivity, RecallMessageActivity, docs/design/grpc_v2_semantics.md sections 7, 12.
"""

from __future__ import annotations

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.server.apache_v2 import status
from rocketpy_broker.server.apache_v2.clients import ApacheClients
from rocketpy_broker.server.apache_v2.handlers import Methods
from rocketpy_broker.server.apache_v2.name_rules import check_topic
from rocketpy_broker.server.apache_v2.request_context import RequestContext
from rocketpy_broker.server.apache_v2.sends.group_queue import queue_of_group
from rocketpy_broker.server.apache_v2.sends.message_record import deliver_ms, encoded
from rocketpy_broker.server.apache_v2.sends.message_rules import (
    MESSAGES_MAX,
    SendRules,
    check_type,
)
from rocketpy_broker.server.apache_v2.status import StatusError
from rocketpy_broker.server.apache_v2.transaction_id import TransactionId
from rocketpy_broker.services.delay.recall import RecallService
from rocketpy_broker.services.send.blocks import Stored
from rocketpy_broker.services.send.broker_properties import broker_properties
from rocketpy_broker.services.send.message_types import accepted_type
from rocketpy_broker.services.send.service import SendService
from rocketpy_broker.services.topics.manager import TopicConfigManager, is_retry
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.apache.rocketmq.v2 import service_pb2
from rocketpy_proto.call_limits import ANY_QUEUE
from rocketpy_proto.model import (
    DEAD_LETTER_PREFIX,
    DELAY,
    FIFO,
    NORMAL,
    PRIORITY,
    TRANSACTION,
)
from rocketpy_proto.model.configs import TopicConfig
from rocketpy_proto.model.recall_handle import RecallHandle

# Messages of one scheduler slot: some milliseconds of work.
MESSAGES_A_SLOT = 16


class SendServicer:
    """The methods SendMessage and RecallMessage."""

    def __init__(
        self,
        sends: SendService,
        recall: RecallService,
        topics: TopicConfigManager,
        clients: ApacheClients,
        config: BrokerConfig,
        clock: Clock,
    ) -> None:
        self._sends = sends
        self._recall = recall
        self._topics = topics
        self._clients = clients
        self._config = config
        self._clock = clock
        self._rules = SendRules(config, clock)
        self._added = broker_properties(config.cluster_name)

    def methods(self) -> Methods:
        """Returns the functions by method name."""
        return {"SendMessage": self._send, "RecallMessage": self._recalled}

    async def _send(
        self, request: service_pb2.SendMessageRequest, caller: RequestContext
    ) -> service_pb2.SendMessageResponse:
        caller.check_client_id()
        messages = request.messages
        if not messages:
            raise StatusError(v2.MESSAGE_CORRUPTED, "the request has no message; send one")
        if len(messages) > MESSAGES_MAX:
            raise StatusError(
                v2.PAYLOAD_TOO_LARGE,
                f"the request has {len(messages)} messages, limit {MESSAGES_MAX}. Send several "
                "requests",
            )
        if len(messages) > MESSAGES_A_SLOT:
            await take_slot("send")
        name = caller.name_of(messages[0].topic)
        check_topic(name)
        self._rules.check_all(messages)
        topic = self._topics.find(name)
        for each in messages:
            self._check_type(topic, each)
        self._sends.preconditions.check(name)
        self._topics.check_writable(name, ANY_QUEUE)
        if any(each.system_properties.message_type == v2.TRANSACTION for each in messages):
            await self._clients.note_producer(caller, name)
        stored = list[Stored | BrokerError]()
        for number, each in enumerate(messages, 1):
            stored.append(await self._stored(name, each, caller.address))
            if number % MESSAGES_A_SLOT == 0 and number < len(messages):
                await take_slot("send")
        entries = [
            await self._entry(name, each, result)
            for each, result in zip(messages, stored, strict=True)
        ]
        return service_pb2.SendMessageResponse(
            status=status.common(each.status for each in entries), entries=entries
        )

    def _check_type(self, topic: TopicConfig | None, message: v2.Message) -> None:
        """Raises StatusError for a message of another type than its topic's."""
        check_type(message)
        if topic is None or not self._config.enable_topic_message_type_check:
            return
        if is_retry(topic.topic) or topic.topic.startswith(DEAD_LETTER_PREFIX):
            return
        found, wanted = _type_of(message.system_properties), accepted_type(topic)
        if wanted not in {None, found}:
            raise StatusError(
                v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"the message is of type {found}, and topic {topic.topic!r} has the message type "
                f"{wanted}. Send it to another topic, or change the topic's type",
            )

    async def _stored(self, topic: str, message: v2.Message, address: str) -> Stored | BrokerError:
        """Stores a message; returns the error if that failed."""
        group = message.system_properties.message_group
        try:
            record = encoded(topic, message, address, self._clock.now_ms(), self._added)
            queue_nums = self._topics.get(topic).write_queue_nums
            queue_id = queue_of_group(group, queue_nums) if group else ANY_QUEUE
            size = len(record).to_bytes(4, "big")
            return await self._sends.append(topic, queue_id, record, size)
        except BrokerError as error:
            return error

    async def _entry(
        self, topic: str, message: v2.Message, stored: Stored | BrokerError
    ) -> service_pb2.SendResultEntry:
        """Waits until a message may be acknowledged; returns its entry."""
        if isinstance(stored, BrokerError):
            return service_pb2.SendResultEntry(status=status.failure(stored))
        try:
            await self._sends.acknowledged(stored)
        except BrokerError as error:
            return service_pb2.SendResultEntry(status=status.failure(error))
        system, result = message.system_properties, stored.result
        entry = service_pb2.SendResultEntry(
            status=status.success(),
            message_id=system.message_id,
            transaction_id=system.message_id,
            offset=result.queue_offset,
        )
        if system.message_type == v2.TRANSACTION:
            offsets = result.physical_offset, result.queue_offset
            entry.transaction_id = TransactionId(system.message_id, *offsets).encode()
        delivery_ms = deliver_ms(system)
        if stored.is_delayed and delivery_ms is not None:
            entry.recall_handle = RecallHandle.of_message(
                topic, self._config.broker_name, delivery_ms, system.message_id
            ).encode()
        return entry

    async def _recalled(
        self, request: service_pb2.RecallMessageRequest, caller: RequestContext
    ) -> service_pb2.RecallMessageResponse:
        caller.check_client_id()
        name = caller.name_of(request.topic)
        check_topic(name)
        if not self._config.recall_message_enable:
            raise StatusError(
                v2.NOT_IMPLEMENTED, "this broker recalls no messages: recallMessageEnable is false"
            )
        wanted = accepted_type(self._topics.get(name))
        if wanted not in {None, DELAY}:
            raise StatusError(
                v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"topic {name!r} has the message type {wanted}; only messages of type {DELAY} can "
                "be recalled",
            )
        message_id = await self._recall.recall(name, request.recall_handle)
        return service_pb2.RecallMessageResponse(message_id=message_id)


def _type_of(system: v2.SystemProperties) -> str:
    """Returns the type of a checked message."""
    if system.message_type == v2.TRANSACTION:
        return TRANSACTION
    if system.HasField("delivery_timestamp"):
        return DELAY
    if system.message_group:
        return FIFO
    return PRIORITY if system.HasField("priority") else NORMAL

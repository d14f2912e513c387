"""Sends of RocketMQ's clients: single messages, batches, and recalls.

A processor makes records from a request and hands them to the send service. A client of our own
protocol makes the records itself. The broker adds the properties that RocketMQ's brokers add. A
single send has no task: callbacks of its block and flush answer it, which costs an eighth less.
Source: SendMessageProcessor, docs/design/remoting.md sections 2.4 and 3.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.errors import BrokerError, RecordIllegalError, UnconfirmedError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.server.remoting.server import Deferred, Processor, Request, Step
from rocketpy_broker.services.delay.recall import RecallService
from rocketpy_broker.services.send.blocks import Stored
from rocketpy_broker.services.send.broker_properties import REGION_ID, broker_properties
from rocketpy_broker.services.send.record_copy import MAX_RECONSUME_TIMES
from rocketpy_broker.services.send.retry_sends import RECONSUME_TIMES_MAX
from rocketpy_broker.services.send.service import SendService
from rocketpy_broker.services.topics.manager import is_retry
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_proto.call_limits import ANY_QUEUE
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.recall_handle import RecallHandle
from rocketpy_proto.model.unique_keys import unique_keys
from rocketpy_proto.record import (
    BlockColumns,
    EncodedBlock,
    Host,
    Record,
    RecordBlock,
    RecordError,
    encode_block,
    encode_offset_message_id,
    encode_with_properties,
    fixed_width_strings,
    hex_digits,
)
from rocketpy_proto.record.block.batch_body import (
    BatchPart,
    batch_parts,
    decode_batch_part,
)
from rocketpy_proto.record.block.ranges import octets_of, offsets_of
from rocketpy_proto.record.properties import (
    DELAY,
    TIMER_OUT_MS,
    UNIQ_KEY,
    decode_properties,
    encode_properties,
)
from rocketpy_proto.record.sys_flag import COMPRESSED, COMPRESSION_MASK
from rocketpy_proto.remoting import RemotingCommand
from rocketpy_proto.remoting.headers.sends import (
    RecallMessageResponse,
    SendMessageRequest,
    SendMessageResponse,
)

# Bytes of a record's size.
SIZE_BYTES = 4
# A part of a batch that takes at most some 5 ms to encode.
MESSAGES_A_SLOT, BATCH_BYTES_A_SLOT = 2_000, 1 << 20
# Bits of a sender's sysFlag that are kept; properties decide about transactions.
KEPT_FLAGS = COMPRESSED | COMPRESSION_MASK
_UNIQ_KEY = f"{UNIQ_KEY}\x01".encode()
_END = b"\x02"
_NEXT_UNIQ_KEY = _END + _UNIQ_KEY
# The broker itself sets it, for messages that a pop consumer gets.
_POP_CK = re.compile(rb"(?:^|(?<=\x02))POP_CK\x01[^\x02]*\x02")
# Nearly no batch has the mark, and the search for it costs less than that for a delay level.
_DELAY_MARK = f"{DELAY}\x01".encode()
_DELAY = rf"(?:^|\x02){DELAY}\x01\+?0*[1-9]"


class SendProcessor:
    """The processor of sends and recalls."""

    def __init__(
        self,
        store: MessageStore,
        sends: SendService,
        recall: RecallService,
        config: BrokerConfig,
        clock: Clock,
    ) -> None:
        self._store = store
        self._sends = sends
        self._recall = recall
        self._broker_name = config.broker_name
        self._clock = clock
        self._added = encode_properties(broker_properties(config.cluster_name))

    def by_code(self) -> Mapping[int, Processor]:
        """Returns the processors."""
        return {
            Code.SEND_MESSAGE: self.send,
            Code.SEND_MESSAGE_V2: self.send,
            Code.SEND_BATCH_MESSAGE: self.send,
            Code.RECALL_MESSAGE: self._recalled,
        }

    def send(self, request: Request) -> Step:
        """Stores a message or a batch, and answers. Raises BrokerError."""
        header = request.header
        is_known = not self._sends.preconditions.is_missing(header.topic)
        body_bytes = len(request.command.body)
        if header.is_batch or not (is_known and self._sends.takes_single(header.topic, body_bytes)):
            return self.store(request)
        properties = self._with_key(_properties(header))
        record = self._record(request, properties)
        stored = self._sends.append_single(header.topic, _queue_id(header), record)
        return Deferred(stored, lambda done: self._stored(request, properties, record, done))

    def _stored(
        self,
        request: Request,
        properties: bytes,
        record: bytes,
        done: asyncio.Future[Stored | None],
    ) -> Step:
        """Answers the send of a single message, at once or after its flush."""
        stored = done.result()
        if stored is None:
            return self.store(request)
        ids = self._ids(stored.result.physical_offset, _sizes(record))
        if self._sends.acknowledges(stored):
            return request.answer(self._position(request, stored, properties, ids))
        return Deferred(
            self._sends.acknowledgement(stored),
            lambda flushed: self._flushed(request, stored, properties, ids, flushed.exception()),
        )

    def _flushed(
        self,
        request: Request,
        stored: Stored,
        properties: bytes,
        ids: str,
        error: BaseException | None,
    ) -> RemotingCommand:
        """Returns the answer to a send after its flush. Raises the flush's error."""
        if error is None:
            return request.answer(self._position(request, stored, properties, ids))
        if not isinstance(error, UnconfirmedError):
            raise error
        # The message is stored, so the answer has its position.
        position = self._position(request, stored, properties, ids)
        return request.answer(position, code=error.code, remark=error.remark)

    async def store(self, request: Request) -> RemotingCommand:
        """Stores a message or a batch as `send` does, but may wait before."""
        header = request.header
        if header.is_batch and is_retry(header.topic):
            raise RecordIllegalError(
                f"batch request does not support retry group {header.topic:.200}; send its "
                "messages one by one"
            )
        await self._sends.preconditions.create_topic(
            header.topic, header.default_topic, header.default_topic_queue_nums
        )
        properties = _properties(header)
        if header.is_batch:
            records, sizes = await self._batch(request, properties)
        else:
            properties = self._with_key(properties)
            records = self._record(request, properties)
            sizes = _sizes(records)
        stored = await self._sends.append(header.topic, _queue_id(header), records, sizes)
        error: BrokerError | None = None
        try:
            await self._sends.acknowledged(stored)
        except BrokerError as raised:
            error = raised
        ids = await self._all_ids(stored, sizes)
        return self._flushed(request, stored, properties, ids, error)

    def _record(self, request: Request, properties: bytes) -> bytes:
        """Returns the record of a single message. Raises RecordIllegalError."""
        header = request.header
        record = Record(
            header.topic,
            0,
            bytes(request.command.body),
            flag=header.flag,
            sys_flag=header.sys_flag & KEPT_FLAGS,
            born_timestamp_ms=header.born_ms,
            born_host=request.connection.peer_host,
            store_host=self._store.store_host,
            reconsume_times=header.reconsume_times,
        )
        try:
            return encode_with_properties(record, properties + self._added)
        except RecordError as error:
            raise RecordIllegalError(str(error)) from error

    async def _batch(self, request: Request, common: bytes) -> tuple[bytes, bytes]:
        """Returns the records of a batch, and their sizes. Raises RecordIllegalError.

        Each further part of a large batch takes a slot. A message's own properties win over the
        batch's, so each message keeps its key.
        """
        blocks = list[EncodedBlock]()
        for part in batch_parts(request.command.body, MESSAGES_A_SLOT, BATCH_BYTES_A_SLOT):
            if blocks:
                await take_slot("batch")
            blocks.append(self._block(request, part, common))
        if len(blocks) > 1:
            await take_slot("batch")
        records = b"".join(block.data for block in blocks)
        return records, b"".join(block.sizes.astype(">i4").tobytes() for block in blocks)

    def _block(self, request: Request, part: BatchPart, common: bytes) -> EncodedBlock:
        """Returns the records of a part of a batch. Raises RecordIllegalError."""
        header = request.header
        try:
            batch = decode_batch_part(part)
            if _has_delay(batch.properties, common):
                raise RecordIllegalError(
                    "a message of the batch has a delay level; send it in a request of its own"
                )
            return encode_block(
                BlockColumns(
                    batch.body,
                    header.topic,
                    0,
                    sys_flag=header.sys_flag & KEPT_FLAGS,
                    flag=batch.flag,
                    born_timestamp_ms=header.born_ms,
                    born_host=request.connection.peer_host,
                    store_host=self._store.store_host,
                    encoded_properties=pc.binary_join_element_wise(
                        *(pa.scalar(common), _all_closed(batch.properties)),
                        *(pa.scalar(self._added), pa.scalar(b"")),
                    ),
                )
            )
        except RecordError as error:
            raise RecordIllegalError(str(error)) from error

    def _with_key(self, properties: bytes) -> bytes:
        """Returns the properties with a unique key: a new one if the sender has given none."""
        if properties.startswith(_UNIQ_KEY) or _NEXT_UNIQ_KEY in properties:
            return properties
        key: str = unique_keys().take(1, self._clock.now_ms())[0].as_py()
        return _UNIQ_KEY + key.encode() + _END + properties

    def _position(
        self, request: Request, stored: Stored, properties: bytes, ids: str
    ) -> SendMessageResponse:
        """Returns the position of the first message, and the ids of all messages."""
        result = stored.result
        return SendMessageResponse(
            ids,
            stored.queue_id,
            result.queue_offset,
            _unique_key(properties),
            recall_handle=self._handle(request.header, stored.delayed),
            region_id=REGION_ID,
            is_trace_on=True,
        )

    async def _all_ids(self, stored: Stored, sizes: bytes) -> str:
        """Returns the ids of stored messages; each further part of a large batch takes a slot."""
        offset, part_bytes, parts = stored.result.physical_offset, MESSAGES_A_SLOT * SIZE_BYTES, []
        for begin in range(0, len(sizes), part_bytes):
            if begin:
                await take_slot("batch")
            part = sizes[begin : begin + part_bytes]
            parts.append(self._ids(offset, part))
            offset += int(np.frombuffer(part, ">i4").sum(dtype=np.int64))
        return ",".join(parts)

    def _ids(self, physical_offset: int, sizes: bytes) -> str:
        return _message_ids(self._store.store_host, physical_offset, sizes)

    def _handle(self, header: SendMessageRequest, delayed: RecordBlock | None) -> str | None:
        """Returns the handle that recalls a message; None for one that no timer holds."""
        if delayed is None or header.is_batch:
            return None
        begin = int(delayed.properties_start[0])
        end = begin + int(delayed.properties_length[0])
        properties = decode_properties(delayed.data[begin:end].tobytes())
        time, key = properties.get(TIMER_OUT_MS), properties.get(UNIQ_KEY)
        if time is None or key is None:
            return None
        # One ms after the time in the property, as in RocketMQ.
        return RecallHandle(header.topic, self._broker_name, int(time) + 1, key).encode()

    async def _recalled(self, request: Request) -> RemotingCommand:
        header = request.header
        msg_id = await self._recall.recall(header.topic, header.recall_handle)
        return request.answer(RecallMessageResponse(msg_id))


def _sizes(record: bytes) -> bytes:
    return len(record).to_bytes(SIZE_BYTES, "big")


def _queue_id(header: SendMessageRequest) -> int:
    return header.queue_id if header.queue_id >= 0 else ANY_QUEUE


def _properties(header: SendMessageRequest) -> bytes:
    sent = _closed((header.properties or "").encode())
    return _POP_CK.sub(b"", sent) + _maximum(header)


def _maximum(header: SendMessageRequest) -> bytes:
    """Returns the property for the sender's maximum of redeliveries; retry topics alone have it."""
    times = header.max_reconsume_times
    if times is None or not is_retry(header.topic):
        return b""
    times = min(max(times, 0), RECONSUME_TIMES_MAX)
    return f"{MAX_RECONSUME_TIMES}\x01{times}\x02".encode()


def _message_ids(host: Host, physical_offset: int, sizes: bytes) -> str:
    """Returns the ids of records of these sizes that follow each other in the log."""
    if len(sizes) == SIZE_BYTES:
        return encode_offset_message_id(host, physical_offset)
    lengths = np.frombuffer(sizes, ">i4").astype(np.int64)
    offsets = physical_offset + np.cumsum(lengths) - lengths
    hosts = np.tile(np.frombuffer(host.to_bytes(), np.uint8), (len(offsets), 1))
    octets = np.hstack((hosts, offsets.astype(">i8").view(np.uint8).reshape(len(offsets), -1)))
    return ",".join(fixed_width_strings(hex_digits(octets)).to_pylist())


def _unique_key(properties: bytes) -> str | None:
    """Returns the unique key of encoded properties: of several ones the last, as RocketMQ does."""
    begin = (_END + properties).rfind(_NEXT_UNIQ_KEY)
    if begin < 0:
        return None
    begin += len(_UNIQ_KEY)
    return properties[begin : properties.index(_END, begin)].decode()


def _closed(properties: bytes) -> bytes:
    """Returns encoded properties with their last separator, which senders may leave out."""
    return properties if not properties or properties.endswith(_END) else properties + _END


def _has_delay(properties: pa.BinaryArray, common: bytes) -> bool:
    """True if a message's own properties, or the ones of its batch, have a delay level."""
    if _DELAY_MARK not in common and _DELAY_MARK not in octets_of(properties).tobytes():
        return False
    found = pc.match_substring_regex(pa.chunked_array([properties, pa.array([common])]), _DELAY)
    return bool(pc.any(found).as_py())


def _all_closed(properties: pa.BinaryArray) -> pa.BinaryArray:
    """Returns encoded properties as `_closed` does, of each message of a batch."""
    offsets = offsets_of(properties)
    ends = offsets[1:][offsets[1:] > offsets[:-1]]
    if (octets_of(properties)[ends - 1] == _END[0]).all():
        return properties
    return pc.if_else(
        pc.or_(pc.ends_with(properties, _END), pc.equal(properties, b"")),
        properties,
        pc.binary_join_element_wise(properties, _END, b""),
    )

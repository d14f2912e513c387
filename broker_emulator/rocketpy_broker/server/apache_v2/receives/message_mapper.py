"""Messages of deliveries and pulls, made of the records of a block.

The digest is MD5 in upper-case hexadecimal digits, the only form that all SDKs read. The encoding
is GZIP for a body that its producer compressed with GZIP, else IDENTITY. Bodies that classic
clients compressed in another way are inflated here, because no SDK can do it. An unreadable one is
delivered as it is stored. Large bodies take a thread.
Source: GrpcConverter#buildMessage, docs/design/grpc_v2_semantics.md section 8.5.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.log_throttle import LogThrottle
from rocketpy_broker.server.apache_v2.receives.delivered_message import delivered
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.record import MalformedRecordError, Record, RecordBlock, decode_record
from rocketpy_proto.record.compression import inflated_or_stored
from rocketpy_proto.record.sys_flag import COMPRESSED

logger = logging.getLogger(__name__)
# Digests of larger bodies take a thread: a megabyte takes 2 ms.
BODY_BYTES_MAX = 256 << 10
_GZIP_MAGIC = b"\x1f\x8b"


class MessageMapper:
    """The mapper of records to messages; it logs unreadable records."""

    def __init__(self, clock: Clock) -> None:
        self._log_throttle = LogThrottle(clock)

    async def message(self, block: RecordBlock, row: int, topic: v2.Resource) -> v2.Message | None:
        """Returns the message of one record of a block; None for a damaged record.

        `topic` is the topic that the client named. The message has no receipt handle; its delivery
        attempt is the record's.
        """
        try:
            record = decode_record(block.data.data, int(block.positions[row])).record
        except MalformedRecordError as error:
            if self._log_throttle.may_log():
                logger.critical(
                    "a message of topic %r is unreadable and not delivered: %s", topic.name, error
                )
            return None
        if len(record.body) > BODY_BYTES_MAX or record.sys_flag & COMPRESSED:
            return await asyncio.to_thread(lambda: delivered(_readable(record), topic))
        return delivered(record, topic)


def _readable(record: Record) -> Record:
    """Returns the record with a body that SDKs can read. Any thread may call it."""
    if not record.sys_flag & COMPRESSED or record.body.startswith(_GZIP_MAGIC):
        return record
    body, _ = inflated_or_stored(record.body, record.sys_flag)
    return replace(record, body=body, sys_flag=record.sys_flag & ~COMPRESSED)

"""Look-ups of messages by log offset and by key.

Source: QueryMessageProcessor, docs/design/remoting.md section 2.8.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.server.remoting.server import Processor, Request
from rocketpy_broker.services import caller
from rocketpy_broker.services.pull.newest_records import newest_records
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record import decode_record
from rocketpy_proto.remoting import RemotingCommand
from rocketpy_proto.remoting.headers.pulls import (
    QueryMessageRequest,
    QueryMessageResponse,
    ViewMessageRequest,
)

# Bytes of an answer with more than one record.
ANSWER_BYTES_MAX = 4 << 20
# RocketMQ's defaultQueryMaxNum: the limit of a query by unique key.
UNIQUE_COUNT_MAX = 32


class LookupProcessor:
    """The processor of look-ups."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def by_code(self) -> Mapping[int, Processor]:
        """Returns the processors."""
        return {Code.VIEW_MESSAGE_BY_ID: self._view, Code.QUERY_MESSAGE: self._query}

    def _view(self, request: Request) -> RemotingCommand:
        header: ViewMessageRequest = request.header
        found = self._store.messages.at(header.offset) if header.offset >= 0 else None
        if found is None:
            raise BrokerError(f"can not find message by the offset, {header.offset}")
        caller.check_readable(decode_record(found).record.topic)
        return request.answer(body=bytes(found))

    async def _query(self, request: Request) -> RemotingCommand:
        header: QueryMessageRequest = request.header
        is_unique = bool(header.is_unique_key_query)
        count = UNIQUE_COUNT_MAX if is_unique else header.max_num
        walk = self._store.messages.walk_key(
            header.topic, header.key, header.begin_ms, header.end_ms, count, is_unique=is_unique
        )
        found = await newest_records(walk, ANSWER_BYTES_MAX)
        answer = QueryMessageResponse(*self._store.index.last_update())
        if found:
            return request.answer(answer, body=b"".join(found))
        remark = "can not find message, maybe time range not correct"
        return request.answer(answer, code=ResponseCode.QUERY_NOT_FOUND, remark=remark)

"""A queue of a broker that answers like RocketMQ's brokers: pulls, offsets, times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rocketpy_proto.record.single import Record, encode_record
from rocketpy_proto.remoting import RemotingCommand, RequestCode, ResponseCode
from rocketpy_proto.remoting.headers import EXCHANGES
from rocketpy_proto.remoting.headers.offsets import OffsetResponse
from rocketpy_proto.remoting.headers.pulls import PullMessageResponse
from tests.unit.connector.transport.remoting.scripted_cluster import TOPIC
from tests.unit.connector.transport.remoting.scripted_peer import Script, Visit, success

# Messages that a broker looks at for one filtered pull.
LOOKED_AT_MAX = 100


@dataclass
class ScriptedQueue:
    """Messages [begin, end); each body is its offset, and some messages may be missing.

    It may answer with few messages, as from disk, and like a slave. Faults belong to scripts.
    """

    end: int
    begin: int = 0
    queue_id: int = 0
    messages_max: int = 32
    missing: frozenset[int] = frozenset()
    is_slave: bool = False
    # Store time and tag of a message.
    stored_ms: Callable[[int], int] = lambda offset: 1_000 + offset
    tag: Callable[[int], str] = lambda offset: "even" if offset % 2 == 0 else "odd"
    # Messages requested by pulls: first offset and count.
    pulls: list[tuple[int, int]] = field(default_factory=list)
    asked: list[RequestCode] = field(default_factory=list)

    def answer(self, request: RemotingCommand) -> RemotingCommand:
        """Answers one request."""
        code = RequestCode(request.code)
        self.asked.append(code)
        if code == RequestCode.PULL_MESSAGE:
            return self._pulled(request)
        offset = {
            RequestCode.GET_MIN_OFFSET: lambda: self.begin,
            RequestCode.GET_MAX_OFFSET: lambda: self.end,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: lambda: self.first_since(
                int(request.ext_fields["timestamp"])
            ),
        }[code]()
        return success(request, OffsetResponse(offset))

    def first_since(self, time_ms: int) -> int:
        """Returns the offset for a time, as 5.3 does."""
        found = (at for at in range(self.begin, self.end) if self.stored_ms(at) >= time_ms)
        return next(found, self.end)

    def record(self, offset: int) -> bytes:
        """Returns one message in its stored form."""
        record = Record(
            TOPIC,
            self.queue_id,
            b"%d" % offset,
            {"TAGS": self.tag(offset)},
            queue_offset=offset,
            store_timestamp_ms=self.stored_ms(offset),
        )
        return encode_record(record)

    def _pulled(self, request: RemotingCommand) -> RemotingCommand:
        offset, count = (int(request.ext_fields[name]) for name in ("queueOffset", "maxMsgNums"))
        self.pulls.append((offset, count))
        if not self.begin <= offset <= self.end:
            return self._moved(request, offset)
        tags = request.ext_fields["subscription"].split(" || ")
        found: list[int] = []
        while offset < self.end and len(found) < min(count, self.messages_max):
            if offset not in self.missing and ("*" in tags or self.tag(offset) in tags):
                found.append(offset)
            offset += 1
            if tags != ["*"] and offset - int(request.ext_fields["queueOffset"]) >= LOOKED_AT_MAX:
                break
        body = b"".join(self.record(each) for each in found)
        header = PullMessageResponse(0, offset, self.begin, self.end)
        if found:
            return success(request, header, body)
        is_end = offset == int(request.ext_fields["queueOffset"])
        code = ResponseCode.PULL_NOT_FOUND if is_end else ResponseCode.PULL_RETRY_IMMEDIATELY
        return self._without(request, code, header)

    def _moved(self, request: RemotingCommand, offset: int) -> RemotingCommand:
        if self.is_slave:
            header = PullMessageResponse(0, offset, self.begin, self.end)
            return self._without(request, ResponseCode.PULL_RETRY_IMMEDIATELY, header)
        corrected = self.begin if offset < self.begin else self.end
        header = PullMessageResponse(0, corrected, self.begin, self.end)
        return self._without(request, ResponseCode.PULL_OFFSET_MOVED, header)

    def _without(
        self, request: RemotingCommand, code: ResponseCode, header: PullMessageResponse
    ) -> RemotingCommand:
        form = EXCHANGES[RequestCode.PULL_MESSAGE].response
        return request.answer(code, ext_fields=form.encode(header), remark="scripted")


def backwards(answer: Callable[[RemotingCommand], RemotingCommand]) -> Script:
    """Answers requests that arrived together in the wrong order."""

    def script(visit: Visit) -> None:
        while requests := visit.some_requests():
            visit.send(*(answer(request) for request in reversed(requests)))

    return script

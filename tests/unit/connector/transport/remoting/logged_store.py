"""A broker that also returns what it has stored: ends of queues, and pulls by offset and tag."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from rocketpy_proto.record import Record, encode_record
from rocketpy_proto.record.properties import decode_properties
from rocketpy_proto.remoting import (
    BatchMessage,
    RemotingCommand,
    RequestCode,
    ResponseCode,
    decode_batch,
)
from rocketpy_proto.remoting.headers.offsets import OffsetResponse
from rocketpy_proto.remoting.headers.pulls import PullMessageResponse
from rocketpy_proto.remoting.headers.sends import SendMessageResponse
from tests.unit.connector.transport.remoting.scripted_peer import Visit, success
from tests.unit.connector.transport.remoting.scripted_store import Fault, Refuse, Script

PULLED_MAX = 32
_Queue = tuple[str, int]


@dataclass
class LoggedStore:
    """The records of each queue of each topic. Only sends to `faulty_topic` meet faults."""

    faulty_topic: str
    faults: list[Script] = field(default_factory=list)
    records: dict[_Queue, list[Record]] = field(default_factory=lambda: defaultdict(list))
    notes: dict[tuple[str, str], int] = field(default_factory=dict)
    pulled_from: list[int] = field(default_factory=list)

    def bodies(self, topic: str, queue_id: int = 0) -> list[bytes]:
        return [record.body for record in self.records[topic, queue_id]]

    def script(self, visit: Visit) -> None:
        """Serves a connection."""
        for request in visit.requests():
            if request.code in {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}:
                if not self._take(visit, request):
                    return
            else:
                visit.send(self._answer(request))

    def _answer(self, request: RemotingCommand) -> RemotingCommand:
        fields = request.ext_fields
        queue = fields["topic"], int(fields["queueId"])
        if request.code == RequestCode.GET_MAX_OFFSET:
            return success(request, OffsetResponse(len(self.records[queue])))
        if request.code == RequestCode.GET_MIN_OFFSET:
            return success(request, OffsetResponse(0))
        if request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            self.notes[fields["consumerGroup"], fields["topic"]] = int(fields["commitOffset"])
            return success(request)
        if request.code == RequestCode.QUERY_CONSUMER_OFFSET:
            noted = self.notes.get((fields["consumerGroup"], fields["topic"]))
            if noted is None:
                return request.answer(ResponseCode.QUERY_NOT_FOUND)
            return success(request, OffsetResponse(noted))
        assert request.code == RequestCode.PULL_MESSAGE, request
        return self._pulled(request, queue)

    def _pulled(self, request: RemotingCommand, queue: _Queue) -> RemotingCommand:
        begin = int(request.ext_fields["queueOffset"])
        self.pulled_from.append(begin)
        count = min(int(request.ext_fields["maxMsgNums"]), PULLED_MAX)
        end = min(begin + count, len(self.records[queue]))
        tags = request.ext_fields["subscription"]
        found = [
            encode_record(record)
            for record in self.records[queue][begin:end]
            if tags in {"*", record.properties.get("TAGS")}
        ]
        header = PullMessageResponse(0, end, 0, len(self.records[queue]))
        answer = success(request, header, b"".join(found))
        if found:
            return answer
        code = ResponseCode.PULL_RETRY_IMMEDIATELY
        return request.answer(code, ext_fields=answer.ext_fields, remark="NO_MATCHED_MESSAGE")

    def _take(self, visit: Visit, request: RemotingCommand) -> bool:
        topic, queue_id = request.ext_fields["b"], int(request.ext_fields["e"])
        fault: Script = Fault.NONE
        if topic == self.faulty_topic and self.faults:
            fault = self.faults.pop(0)
        if isinstance(fault, Refuse):
            visit.send(request.answer(fault.code, remark=fault.remark))
            return True
        offset = len(self.records[topic, queue_id])
        if fault is not Fault.DROP:
            self._store(request, topic, queue_id)
        if fault in {Fault.DROP, Fault.LOSE}:
            return False
        if fault is not Fault.SILENCE:
            place = sum(map(len, self.records.values()))
            header = SendMessageResponse(f"{place:032X}", queue_id, offset)
            visit.send(success(request, header))
        return True

    def _store(self, request: RemotingCommand, topic: str, queue_id: int) -> None:
        body = bytes(request.body)
        alone = BatchMessage(body, request.ext_fields.get("i", "").encode())
        is_batch = request.ext_fields["m"] == "true"
        stored = self.records[topic, queue_id]
        for message in decode_batch(body) if is_batch else [alone]:
            properties = decode_properties(message.properties)
            offset = len(stored)
            stored.append(
                Record(topic, queue_id, bytes(message.body), properties, queue_offset=offset)
            )

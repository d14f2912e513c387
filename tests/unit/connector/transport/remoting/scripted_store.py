"""A broker that stores sent messages, except for a test's faults, in their turn.

It may refuse, store less safely, lose its answer with the connection, or stay silent; it never
stores a part of a batch, and never something else than what was sent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto

from msgspec.structs import replace

from rocketpy_proto.remoting import RemotingCommand, RequestCode, ResponseCode, decode_batch
from rocketpy_proto.remoting.headers.offsets import OffsetResponse
from rocketpy_proto.remoting.headers.sends import SendMessageResponse
from tests.unit.connector.transport.remoting.scripted_peer import Visit, success


class Fault(Enum):
    """Faults of one send."""

    NONE = auto()
    # It is stored, and the connection ends without an answer.
    LOSE = auto()
    # It is not stored, and the connection ends.
    DROP = auto()
    # It is stored, and there is no answer.
    SILENCE = auto()


@dataclass(frozen=True)
class Refuse:
    """A refusal: the send is not stored."""

    code: ResponseCode
    remark: str = ""


@dataclass(frozen=True)
class Unsafe:
    """A response code for a stored send."""

    code: ResponseCode


Script = Fault | Refuse | Unsafe


@dataclass
class Store:
    """Bodies of each queue, in their order; `held` sends are answered together, the last first.

    Stored messages are visible once ends of queues have been requested `unshown` times.
    """

    faults: list[Script] = field(default_factory=list)
    held: int = 1
    version: int = 479
    unshown: int = 0
    ends_asked: list[int] = field(default_factory=list)
    bodies: dict[int, list[bytes]] = field(default_factory=dict)
    heard: list[RemotingCommand] = field(default_factory=list)
    on_send: Callable[[], None] = lambda: None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def script(self, visit: Visit) -> None:
        """Serves a connection."""
        waiting: list[RemotingCommand] = []
        for request in visit.requests():
            if request.code == RequestCode.GET_MAX_OFFSET:
                visit.send(self._end(request))
                continue
            waiting.append(request)
            queues = [one.ext_fields["e"] for one in waiting]
            assert len(set(queues)) == len(queues), "two sends of one queue are under way"
            if len(waiting) < self.held:
                continue
            while waiting:
                if not self._take(visit, waiting.pop()):
                    return

    def _end(self, request: RemotingCommand) -> RemotingCommand:
        queue_id = int(request.ext_fields["queueId"])
        with self._lock:
            self.ends_asked.append(queue_id)
            shows = len(self.ends_asked) > self.unshown
            end = len(self.bodies.get(queue_id, ())) if shows else 0
        return replace(success(request, OffsetResponse(end)), version=self.version)

    def _take(self, visit: Visit, request: RemotingCommand) -> bool:
        """True if the connection stays open."""
        with self._lock:
            self.heard.append(request)
            fault = self.faults.pop(0) if self.faults else Fault.NONE
        self.on_send()
        if isinstance(fault, Refuse):
            visit.send(request.answer(fault.code, remark=fault.remark))
            return True
        first = -1 if fault is Fault.DROP else self._store(request)
        if fault in {Fault.DROP, Fault.LOSE}:
            return False
        if fault is not Fault.SILENCE:
            queue_id = int(request.ext_fields["e"])
            place = sum(map(len, self.bodies.values()))
            header = SendMessageResponse(f"{place:032X}", queue_id, first)
            fields = success(request, header).ext_fields
            code = fault.code if isinstance(fault, Unsafe) else ResponseCode.SUCCESS
            visit.send(request.answer(code, ext_fields=fields))
        return True

    def _store(self, request: RemotingCommand) -> int:
        """Stores the messages; returns the first one's offset."""
        is_batch = request.ext_fields["m"] == "true"
        body = bytes(request.body)
        found = [bytes(m.body) for m in decode_batch(body)] if is_batch else [body]
        with self._lock:
            stored = self.bodies.setdefault(int(request.ext_fields["e"]), [])
            stored.extend(found)
            return len(stored) - len(found)

"""A broker that stores what is sent to it, but for the faults that a test wants, in their turn.

It may refuse, store less safely, lose its answer with the connection, or stay silent; it never
stores a part of a batch, and never something else than what was sent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from rocketpy_proto.remoting import RemotingCommand, RequestCode, ResponseCode, decode_batch
from rocketpy_proto.remoting.headers.offsets import OffsetResponse
from rocketpy_proto.remoting.headers.sending import SendMessageResponse
from tests.unit.connector.transport.remoting.scripted_peer import Visit, success


class Fault(Enum):
    """What goes wrong with one send."""

    NONE = auto()
    # It is stored, and the connection ends without an answer.
    LOSE = auto()
    # It is not stored, and the connection ends.
    DROP = auto()
    # It is stored, and there is no answer.
    SILENCE = auto()


@dataclass(frozen=True)
class Refuse:
    """Not stored."""

    code: ResponseCode
    remark: str = ""


@dataclass(frozen=True)
class Unsafe:
    """Stored, and answered with this code."""

    code: ResponseCode


Script = Fault | Refuse | Unsafe


@dataclass
class Store:
    """Bodies of each queue, in their order; `held` sends are answered together, the last first."""

    faults: list[Script] = field(default_factory=list)
    held: int = 1
    version: int = 479
    bodies: dict[int, list[bytes]] = field(default_factory=dict)
    heard: list[RemotingCommand] = field(default_factory=list)
    on_send: Callable[[], None] = lambda: None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def script(self, visit: Visit) -> None:
        """Of each connection."""
        waiting: list[RemotingCommand] = []
        for request in visit.requests():
            if request.code == RequestCode.GET_MAX_OFFSET:
                visit.send(self._versioned(request))
                continue
            waiting.append(request)
            queues = [one.ext_fields["e"] for one in waiting]
            assert len(set(queues)) == len(queues), "two sends of one queue are under way"
            if len(waiting) < self.held:
                continue
            while waiting:
                if not self._take(visit, waiting.pop()):
                    return

    def _versioned(self, request: RemotingCommand) -> RemotingCommand:
        return replace(success(request, OffsetResponse(0)), version=self.version)

    def _take(self, visit: Visit, request: RemotingCommand) -> bool:
        """Whether the connection goes on."""
        with self._lock:
            self.heard.append(request)
            fault = self.faults.pop(0) if self.faults else Fault.NONE
        self.on_send()
        if isinstance(fault, Refuse):
            visit.send(request.answer(fault.code, remark=fault.remark))
            return True
        if fault is not Fault.DROP:
            self._store(request)
        if fault in {Fault.DROP, Fault.LOSE}:
            return False
        if fault is not Fault.SILENCE:
            header = SendMessageResponse("AB", int(request.ext_fields["e"]), 0)
            fields = success(request, header).ext_fields
            code = fault.code if isinstance(fault, Unsafe) else ResponseCode.SUCCESS
            visit.send(request.answer(code, ext_fields=fields))
        return True

    def _store(self, request: RemotingCommand) -> None:
        is_batch = request.ext_fields["m"] == "true"
        body = bytes(request.body)
        found = [bytes(m.body) for m in decode_batch(body)] if is_batch else [body]
        with self._lock:
            self.bodies.setdefault(int(request.ext_fields["e"]), []).extend(found)

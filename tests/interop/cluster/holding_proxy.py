"""A proxy before a cluster that holds one request or its answer until released.

Clients ask the name server through it, and its routes then name the proxy of the broker. A test
chooses the request; all later frames on its connection wait as well.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from rocketpy_proto.remoting import FrameDecoder, RemotingCommand, encode_frame
from tests.interop.cluster.cluster import Cluster
from tests.interop.cluster.servers import Broker
from tests.support.spark.holding_proxy import HELD_SECONDS_MAX, Hold, Moment

HOST = "127.0.0.1"
RECEIVED_BYTES_MAX = 1 << 20
Match = Callable[[RemotingCommand], bool]
Change = Callable[[RemotingCommand], RemotingCommand]


@dataclass
class _Armed:
    """A hold, and the match of its requests."""

    hold: Hold
    match: Match


class Relay:
    """A listener on a free port that passes each frame on to the server at `target`."""

    def __init__(self, target: str, change_answer: Change = lambda answer: answer) -> None:
        self._target = target
        self._change_answer = change_answer
        self._lock = threading.Lock()
        self._armed: _Armed | None = None
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server((HOST, 0))
        self.address = f"{HOST}:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self, match: Match, moment: Moment, skip: int = 0) -> Hold:
        """Arms one place; releases the one armed before."""
        self.release()
        with self._lock:
            self._armed = _Armed(Hold("request", moment, skip), match)
            return self._armed.hold

    def release(self) -> None:
        """Releases the held request and all later ones."""
        with self._lock:
            armed, self._armed = self._armed, None
        if armed is not None:
            armed.hold.release()

    def close(self) -> None:
        """Closes all connections."""
        self.release()
        for one in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                host, _, port = self._target.rpartition(":")
                server = socket.create_connection((host, int(port)))
                self._sockets += [client, server]
                # The opaques of the requests with answers to hold.
                chosen: set[int] = set()
                for pump, source, sink in (
                    (self._pass_request, client, server),
                    (self._pass_answer, server, client),
                ):
                    threading.Thread(
                        target=self._pump, args=(pump, source, sink, chosen), daemon=True
                    ).start()

    def _pump(
        self,
        change: Callable[[RemotingCommand, set[int]], RemotingCommand],
        source: socket.socket,
        sink: socket.socket,
        chosen: set[int],
    ) -> None:
        decoder = FrameDecoder()
        with contextlib.suppress(OSError):
            while data := source.recv(RECEIVED_BYTES_MAX):
                for command in decoder.feed(data):
                    sink.sendall(b"".join(encode_frame(change(command, chosen))))
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)

    def _pass_request(self, command: RemotingCommand, chosen: set[int]) -> RemotingCommand:
        with self._lock:
            armed = self._armed
            if armed is None or command.is_response or not armed.match(command):
                return command
            if armed.hold.skip > 0:
                armed.hold.skip -= 1
                return command
        if armed.hold.moment is Moment.ASKED:
            _stand(armed.hold)
        else:
            chosen.add(command.opaque)
        return command

    def _pass_answer(self, command: RemotingCommand, chosen: set[int]) -> RemotingCommand:
        if command.is_response and command.opaque in chosen:
            with self._lock:
                armed = self._armed
            if armed is not None:
                _stand(armed.hold)
        return self._change_answer(command)


def _stand(hold: Hold) -> None:
    hold.reached.set()
    hold.released.wait(HELD_SECONDS_MAX)


class ClusterProxy:
    """The proxies of a cluster's first name server and one of its brokers."""

    def __init__(self, cluster: Cluster, broker: Broker) -> None:
        self.broker = Relay(broker.address)
        real, ours = broker.address.encode(), self.broker.address.encode()
        self._names = Relay(
            cluster.name_servers[0].address,
            lambda answer: replace(answer, body=bytes(answer.body).replace(real, ours)),
        )
        self.addresses = self._names.address

    def __enter__(self) -> ClusterProxy:
        return self

    def __exit__(self, *_error: object) -> None:
        self.broker.close()
        self._names.close()

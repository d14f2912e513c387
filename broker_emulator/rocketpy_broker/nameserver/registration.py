"""Registrations of brokers, and the log of what changes them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.server.calls.failure_log import PeerLines
from rocketpy_broker.server.remoting.connection import RemotingConnection
from rocketpy_proto.model.configs import DataVersion
from rocketpy_proto.remoting.bodies.routes import BrokerData
from rocketpy_proto.remoting.headers.cluster import BrokerRequest, RegisterBrokerRequest

logger = logging.getLogger(__name__)
# The silence after which a broker is removed, unless its registration gives another time up to
# EXPIRY_MS_MAX.
EXPIRY_MS, EXPIRY_MS_MAX = 120_000, 3_600_000
# Log lines for the changes of one address in a minute.
LINES_MAX = 20
TEXT_MAX = 200


@dataclass(slots=True)
class BrokerRegistration:
    """The last registration of a broker. The broker of this process has no connection."""

    request: RegisterBrokerRequest
    connection: RemotingConnection | None
    updated_ms: float
    data_version: DataVersion

    @property
    def address(self) -> str:
        """The broker's address."""
        return self.request.broker_addr

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the registration, each of any length."""
        own = self.request
        return own.broker_name, own.cluster_name, own.broker_addr, own.ha_server_addr

    @property
    def end_ms(self) -> float:
        """The monotonic time until which the broker must register again."""
        if self.connection is None:
            return float("inf")
        given_ms = self.request.heartbeat_timeout_ms or EXPIRY_MS
        return self.updated_ms + min(given_ms, EXPIRY_MS_MAX)


@dataclass(slots=True)
class BrokerGroup:
    """The brokers of one name by id, and the topics that they have registered."""

    cluster: str
    is_acting_master_enabled: bool = False
    members: dict[int, BrokerRegistration] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)
    # JSON of the queue mappings of static topics.
    mappings: dict[str, bytes] = field(default_factory=dict)

    @property
    def addresses(self) -> dict[int, str]:
        """The addresses by id, sorted."""
        return {broker_id: known.address for broker_id, known in sorted(self.members.items())}

    def data(self, name: str) -> BrokerData:
        """Returns the addresses as clients get them."""
        return BrokerData(name, self.addresses, self.cluster, self.is_acting_master_enabled)


class RegistrationLog:
    """The log of registrations and their ends, LINES_MAX lines for each address and minute.

    Starts, ends and takeovers have a limit each, so that none withholds lines of another kind.
    """

    def __init__(self, clock: Clock) -> None:
        kinds = (PeerLines(clock, LINES_MAX) for _ in range(3))
        self._starts, self._ends, self._takeovers = kinds

    def begun(
        self, new: BrokerRegistration, last: BrokerRegistration | None, cluster: str | None
    ) -> None:
        """Logs a new or changed registration.

        `cluster` is the cluster of the broker's name until now; None for a new name.
        """
        request, connection = new.request, new.connection
        if cluster is None:
            self._log(self._starts, logging.INFO, request, connection, "first registration")
        elif cluster != request.cluster_name:
            text = f"leaves cluster {_cut(cluster)}; names of brokers must be unique"
            self._taken(request, connection, text)
        if last is not None and last.address != new.address:
            text = f"address {_cut(new.address)} takes the place of {_cut(last.address)}"
            self._taken(request, connection, text)
        elif last is not None and last.connection is not connection:
            text = f"takes the place of its registration by {_peer(last.connection)}"
            self._taken(request, connection, text)

    def unregistered(
        self, known: BrokerRegistration, request: BrokerRequest, connection: RemotingConnection
    ) -> None:
        """Logs the end of a broker by another connection than its own."""
        if known.connection is not connection:
            self._taken(request, connection, f"ends its registration by {_peer(known.connection)}")

    def ended(self, known: BrokerRegistration, why: str) -> None:
        """Logs the end of a broker without a request."""
        text = f"is removed: {why}"
        self._log(self._ends, logging.WARNING, known.request, known.connection, text)

    def _taken(
        self,
        request: RegisterBrokerRequest | BrokerRequest,
        connection: RemotingConnection | None,
        text: str,
    ) -> None:
        self._log(self._takeovers, logging.WARNING, request, connection, text)

    @staticmethod
    def _log(
        lines: PeerLines,
        level: int,
        request: RegisterBrokerRequest | BrokerRequest,
        connection: RemotingConnection | None,
        text: str,
    ) -> None:
        peer = _peer(connection)
        withheld = lines.due(peer)
        if withheld is not None:
            logger.log(
                level,
                "broker %s, id %d, of cluster %s, by %s: %s; %d more since the last such line",
                *(_cut(request.broker_name), request.broker_id, _cut(request.cluster_name)),
                *(peer, text, withheld),
            )


def _peer(connection: RemotingConnection | None) -> str:
    return "this process" if connection is None else connection.peer


def _cut(text: str) -> str:
    """Returns the start of a client's text, on one line."""
    return repr(text[:TEXT_MAX])[1:-1]

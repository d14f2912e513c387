"""Routes of the broker in the name server's process."""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator

import msgspec

from rocketpy_broker.config import SLAVES_MAX
from rocketpy_broker.nameserver.errors import RegistrationError, TooManyEntriesError
from rocketpy_broker.nameserver.route_table import MASTER_ID, STEP_TOPICS, RouteTable
from rocketpy_broker.nameserver.steps import in_steps
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.server.remoting.connection import RemotingConnection
from rocketpy_broker.services.registration.identity import BrokerIdentity
from rocketpy_broker.services.registration.topics import RegisteredTopics
from rocketpy_proto.record import UNKNOWN_HOST
from rocketpy_proto.remoting.bodies.routes import BrokerData, BrokerMemberGroup
from rocketpy_proto.remoting.headers.cluster import (
    BrokerRequest,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)

logger = logging.getLogger(__name__)
# No host and port is longer.
ADDRESS_CHARACTERS_MAX = 300


class OwnBroker:
    """The broker's entry in the routes. No registration by network can replace or end it.

    Each client gets the address at which its own connection has reached the name server.
    """

    def __init__(
        self, routes: RouteTable, topics: RegisteredTopics, identity: BrokerIdentity
    ) -> None:
        self.routes = routes
        self._topics = topics
        self._identity = identity
        self._scope = TaskScope()

    async def start(self, scope: TaskScope) -> None:
        """Stores all topics; each later change is stored at once."""
        self._scope = scope
        self._topics.changed.add(self._changed)
        await in_steps(self._steps(self._topics.present()))

    def _changed(self, names: Collection[str]) -> None:
        if len(names) < STEP_TOPICS:
            for _ in self._steps(names):
                pass
        else:
            self._scope.start(in_steps(self._steps([*names])))

    def _steps(self, names: Collection[str]) -> Generator[None, None, None]:
        """Stores the named topics as they are now; drops the ones that are gone."""
        table = self._topics.table(names)
        header = self._identity.registration(UNKNOWN_HOST)
        try:
            yield from self.routes.register(header, table, None)
        except (RegistrationError, TooManyEntriesError) as error:
            logger.warning("routes lack topics of this broker: %s", error)
        for gone in set(names) - table.topic_configs.keys():
            self.routes.remove_topic(self._identity.broker_name, gone)

    def check_other(
        self, header: RegisterBrokerRequest | BrokerRequest, connection: RemotingConnection
    ) -> None:
        """Raises RegistrationError for a request by network that would change this broker's entry.

        Slaves of this broker may register, if it listens for them. At a slave its master and the
        other slaves may.
        """
        identity, address = self._identity, header.broker_addr
        if address in {self.address(connection), identity.address(UNKNOWN_HOST)}:
            raise RegistrationError(
                f"address {address:.200} belongs to the broker in this name server's process; give "
                "the other broker another port"
            )
        if header.broker_name != identity.broker_name:
            return
        is_alone = identity.broker_id == MASTER_ID and identity.ha_port is None
        if is_alone or header.broker_id == identity.broker_id:
            raise RegistrationError(
                f"broker name {header.broker_name:.200} with id {identity.broker_id} belongs to "
                "the broker in this name server's process; give the other broker another name or id"
            )
        is_id = MASTER_ID <= header.broker_id <= SLAVES_MAX
        is_named = is_id and len(address) <= ADDRESS_CHARACTERS_MAX
        if not is_named or header.cluster_name != identity.cluster_name:
            raise RegistrationError(
                f"another broker named {identity.broker_name} needs an id from 0 to {SLAVES_MAX}, "
                f"the cluster {identity.cluster_name}, and an address of at most "
                f"{ADDRESS_CHARACTERS_MAX} characters"
            )

    def answered(
        self, header: RegisterBrokerRequest, connection: RemotingConnection
    ) -> RegisterBrokerResponse | None:
        """Returns the addresses of this broker for a slave of it; None for other brokers."""
        identity = self._identity
        if header.broker_name != identity.broker_name or identity.broker_id != MASTER_ID:
            return None
        own = identity.registration(connection.local_host)
        return RegisterBrokerResponse(own.ha_server_addr, own.broker_addr)

    def address(self, connection: RemotingConnection) -> str:
        """Returns the broker's address for a client."""
        return self._identity.address(connection.local_host)

    def seen(self, data: BrokerData, connection: RemotingConnection) -> BrokerData:
        """Returns a broker's addresses as a client gets them."""
        if data.broker_name != self._identity.broker_name:
            return data
        addresses = {**data.broker_addrs, self._identity.broker_id: self.address(connection)}
        return msgspec.structs.replace(data, broker_addrs=addresses)

    def member_addresses(
        self, group: BrokerMemberGroup, connection: RemotingConnection
    ) -> BrokerMemberGroup:
        """Returns the addresses of one broker name as a client gets them."""
        data = self.seen(BrokerData(group.broker_name, group.broker_addrs), connection)
        return msgspec.structs.replace(group, broker_addrs=data.broker_addrs)

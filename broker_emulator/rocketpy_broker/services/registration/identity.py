"""Name and address under which name servers know the broker."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from rocketpy_broker.config import BrokerConfig
from rocketpy_proto.record import Host
from rocketpy_proto.remoting.headers.cluster import BrokerRequest, RegisterBrokerRequest
from rocketpy_proto.texts import address_text


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The broker's names, and the parts of its address; `port` is the remoting port.

    Without `host` a peer knows the broker by the address at which the two are connected.
    """

    cluster_name: str
    broker_name: str
    host: str | None
    port: int
    # The port for slaves; None without one.
    ha_port: int | None = None
    # RocketMQ's brokerId: 0 for a master.
    broker_id: int = 0

    @classmethod
    def of(
        cls, config: BrokerConfig, remoting_port: int, ha_port: int | None = None
    ) -> BrokerIdentity:
        """Returns the identity of a broker with this configuration and these ports."""
        return cls(
            config.cluster_name,
            config.broker_name,
            config.advertise_host or _listening_host(config.host),
            config.advertise_port or remoting_port,
            ha_port,
            config.replication.broker_id,
        )

    def address(self, local: Host) -> str:
        """Returns the broker's address for a peer whose connection ends at `local` here."""
        return address_text(self.host or str(local.address), self.port)

    def is_loopback(self, local: Host) -> bool:
        """True if only clients of this machine can use the address."""
        try:
            return ipaddress.ip_address(self.host or str(local.address)).is_loopback
        except ValueError:
            return self.host == "localhost"

    def registration(self, local: Host, body_crc32: int = 0) -> RegisterBrokerRequest:
        """Returns the header of a registration by a connection that ends at `local` here."""
        host = self.host or str(local.address)
        return RegisterBrokerRequest(
            self.broker_name,
            address_text(host, self.port),
            self.cluster_name,
            self.broker_id,
            # Without a port for slaves: RocketMQ's default port, where this broker does not listen.
            address_text(host, self.ha_port or self.port + 1),
            body_crc32=body_crc32,
            is_acting_master_enabled=False,
        )

    def reference(self, local: Host) -> BrokerRequest:
        """Returns the header of a request about the registration."""
        address = self.address(local)
        return BrokerRequest(self.broker_name, address, self.cluster_name, self.broker_id)


def _listening_host(host: str) -> str | None:
    """Returns the only address at which clients reach the broker; None if there may be more."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
    return None if address.is_unspecified else str(address)

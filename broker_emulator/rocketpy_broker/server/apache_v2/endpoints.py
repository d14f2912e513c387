"""Endpoints of this broker in answers to clients.

The broker returns the endpoints that a client was configured with: they work through port mappings
and translated addresses. Source: docs/design/grpc_v2_semantics.md section 5.
"""

from __future__ import annotations

import ipaddress

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.server.apache_v2.status import StatusError
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.texts import PORT_MAX

ADDRESSES_MAX, HOST_CHARACTERS_MAX = 16, 255
# A response repeats the endpoints for each queue. Its bytes are written in one step.
ROUTE_BYTES_MAX = 16 << 20
_VERSIONS = {v2.IPv4: 4, v2.IPv6: 6}


def endpoints_for(asked: v2.Endpoints, config: BrokerConfig) -> v2.Endpoints:
    """Returns the endpoints of a request, or the configured address if it has none.

    Raises StatusError for endpoints that clients cannot use.
    """
    if not asked.addresses:
        return own_endpoints(config)
    is_usable = len(asked.addresses) <= ADDRESSES_MAX and all(
        _is_usable(asked.scheme, each) for each in asked.addresses
    )
    if not is_usable or (asked.scheme == v2.DOMAIN_NAME and len(asked.addresses) > 1):
        raise StatusError(
            v2.ILLEGAL_ACCESS_POINT,
            "the endpoints are illegal; send literal addresses of the scheme, or one host name, "
            f"with ports from 1 to {PORT_MAX}",
        )
    return asked


def check_bytes(queue: v2.MessageQueue, count: int) -> None:
    """Raises StatusError if a response with `count` queues like this one is too large."""
    size = count * queue.ByteSize()
    if size > ROUTE_BYTES_MAX:
        raise StatusError(
            v2.ILLEGAL_ACCESS_POINT,
            f"the endpoints for {count} queues take {size} bytes, limit {ROUTE_BYTES_MAX}. Name "
            "fewer addresses",
        )


def own_endpoints(config: BrokerConfig) -> v2.Endpoints:
    """Returns the configured address of the broker. Raises StatusError if it has none."""
    host, scheme = config.advertise_host or config.host, v2.DOMAIN_NAME
    is_known = bool(config.port)
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        pass
    else:
        is_known = is_known and not address.is_unspecified
        host, scheme = str(address), v2.IPv4 if address.version == 4 else v2.IPv6
    if not is_known:
        raise StatusError(
            v2.ILLEGAL_ACCESS_POINT,
            "the request has no endpoints and the broker has no address of its own; send the "
            "endpoints of the client's configuration, or set --advertise-host",
        )
    return v2.Endpoints(scheme=scheme, addresses=[v2.Address(host=host, port=config.port)])


def _is_usable(scheme: v2.AddressScheme, address: v2.Address) -> bool:
    if not (0 < address.port <= PORT_MAX and 0 < len(address.host) <= HOST_CHARACTERS_MAX):
        return False
    if scheme == v2.DOMAIN_NAME:
        return True
    try:
        return ipaddress.ip_address(address.host).version == _VERSIONS.get(scheme)
    except ValueError:
        return False

"""Hosts and message ids. Source: docs/design/storage.md sections 2.1 and 5."""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass

from rocketpy_proto.record.errors import UnencodableRecordError
from rocketpy_proto.texts import PORT_MAX, address_text

_PORT = struct.Struct(">i")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Host:
    """An address and a port, as records carry them."""

    address: Address
    port: int

    @classmethod
    def parse(cls, text: str) -> Host:
        """Returns the host of `1.2.3.4:10911` or `[::1]:10911`. Raises ValueError."""
        address, colon, port = text.rpartition(":")
        if not colon:
            raise ValueError(f"host {text!r} has no port; write it as address:port")
        if not 0 <= int(port) <= PORT_MAX:
            raise ValueError(f"host {text!r} has a port that is not between 0 and {PORT_MAX}")
        return cls(ipaddress.ip_address(address.strip("[]")), int(port))

    @classmethod
    def from_bytes(cls, data: bytes) -> Host:
        """Returns the host of 8 bytes (IPv4) or 20 bytes (IPv6)."""
        address = data[: -_PORT.size]
        kind = ipaddress.IPv4Address if len(address) == 4 else ipaddress.IPv6Address
        return cls(kind(address), _PORT.unpack(data[-_PORT.size :])[0])

    def to_bytes(self) -> bytes:
        """Returns the address in network order, then the port as int32.

        Raises UnencodableRecordError for a port above int32. Records with any int32 port can be
        read.
        """
        try:
            return self.address.packed + _PORT.pack(self.port)
        except struct.error as error:
            raise UnencodableRecordError("port", self.port, "does not fit in 32 bits") from error

    @property
    def is_v6(self) -> bool:
        """True if the address takes 16 bytes."""
        return self.address.version == 6

    def __str__(self) -> str:
        return address_text(str(self.address), self.port)


UNKNOWN_HOST = Host(ipaddress.IPv4Address(0), 0)
_OFFSET = struct.Struct(">q")


def encode_offset_message_id(store_host: Host, physical_offset: int) -> str:
    """Returns the offsetMsgId: upper-case hex of store host and physical offset.

    Source: docs/design/storage.md section 5.1.
    """
    return (store_host.to_bytes() + _OFFSET.pack(physical_offset)).hex().upper()


def decode_offset_message_id(message_id: str) -> tuple[Host, int]:
    """Returns store host and physical offset of an offsetMsgId. Raises ValueError."""
    data = bytes.fromhex(message_id)
    if len(data) not in (16, 28):
        raise ValueError(
            f"{message_id!r} is not an offset message id: it has {len(data)} bytes, not 16 or 28"
        )
    return Host.from_bytes(data[: -_OFFSET.size]), _OFFSET.unpack(data[-_OFFSET.size :])[0]

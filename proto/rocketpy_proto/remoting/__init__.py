"""Codec of RocketMQ's remoting protocol, for clients and servers.

    bytes <-> RemotingCommand     frames.py, by json_header.py and binary_header.py
    ext fields <-> headers        headers/, by the tables of fields.py
    body <-> values               bodies/; batches.py for batch sends; records stay bytes

It does no I/O. Any invalid bytes of a peer raise RemotingFormatError. The only state is the
incomplete frame of a FrameDecoder. Source: docs/design/remoting.md.
"""

from rocketpy_proto.model.codes import Language, RequestCode, ResponseCode
from rocketpy_proto.remoting.batches import (
    BatchMessage,
    decode_batch,
    encode_batch,
    split_batches,
)
from rocketpy_proto.remoting.bodies import REQUEST_BODIES, RESPONSE_BODIES
from rocketpy_proto.remoting.command import (
    ONE_WAY_FLAG,
    PROTOCOL_VERSION,
    RESPONSE_FLAG,
    RemotingCommand,
    Serialization,
)
from rocketpy_proto.remoting.errors import (
    RemotingError,
    RemotingFormatError,
    UnencodableRemotingError,
)
from rocketpy_proto.remoting.fields import (
    Header,
    MessageQueue,
    QueueTable,
    decode_body,
    encode_body,
    encode_entries,
    encode_with_part,
)
from rocketpy_proto.remoting.frames import FRAME_BYTES_MAX, FrameDecoder, encode_frame
from rocketpy_proto.remoting.headers import EXCHANGES, NoFields
from rocketpy_proto.remoting.signature import is_signed_by, signed
from rocketpy_proto.struct_types import Body

__all__ = [
    "EXCHANGES",
    "FRAME_BYTES_MAX",
    "ONE_WAY_FLAG",
    "PROTOCOL_VERSION",
    "REQUEST_BODIES",
    "RESPONSE_BODIES",
    "RESPONSE_FLAG",
    "BatchMessage",
    "Body",
    "FrameDecoder",
    "Header",
    "Language",
    "MessageQueue",
    "NoFields",
    "QueueTable",
    "RemotingCommand",
    "RemotingError",
    "RemotingFormatError",
    "RequestCode",
    "ResponseCode",
    "Serialization",
    "UnencodableRemotingError",
    "decode_batch",
    "decode_body",
    "encode_batch",
    "encode_body",
    "encode_entries",
    "encode_frame",
    "encode_with_part",
    "is_signed_by",
    "signed",
    "split_batches",
]

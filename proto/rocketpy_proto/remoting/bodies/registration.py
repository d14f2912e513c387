"""Body of a broker's registration at a name server, both forms.

The plain form is JSON. The compressed form is one zlib stream of pieces, each after its length of 4
bytes:

    DataVersion as JSON | count 4 | count times: a topic as text | filter servers as JSON
    | from 5.0 on: count 4 | count times: a queue mapping as JSON

Source: docs/design/remoting.md section 4.7.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from rocketpy_proto.model.configs import NO_VERSION, DataVersion, TopicConfig
from rocketpy_proto.remoting.bodies.configs import TopicConfigTable
from rocketpy_proto.remoting.errors import RemotingFormatError, UnencodableRemotingError
from rocketpy_proto.remoting.fields import decode_body, encode_body
from rocketpy_proto.remoting.json_text import read_json
from rocketpy_proto.struct_types import Body, prepared

_WHAT = "RegisterBrokerBody"
_INT32 = struct.Struct(">i")
_TOPIC_PARTS_MIN, _TOPIC_PARTS_MAX = 5, 6
# The limit of an uncompressed frame; a hostile stream would fill the memory.
INFLATED_BYTES_MAX = 16 * 1024 * 1024
# Topics that are encoded at once, in about 0.2 ms.
_STEP_TOPICS = 500


class RegisterBrokerBody(Body, frozen=True):
    """REGISTER_BROKER."""

    topics: TopicConfigTable = msgspec.field(name="topicConfigSerializeWrapper")
    filter_servers: tuple[str, ...] = msgspec.field(name="filterServerList", default=())


def body_crc32(body: bytes) -> int:
    """Returns the header's `body_crc32`."""
    return zlib.crc32(body) & 0x7FFFFFFF


def encode_plain(topics: Iterable[TopicConfig], version: DataVersion) -> bytes:
    """Returns the plain form, as brokers of 5.x send it. Raises UnencodableRemotingError.

    No step of it holds Python's lock for long, so that a thread can encode many topics.
    """
    pieces, rest = [], iter(topics)
    try:
        while part := {each.topic: each for each in islice(rest, _STEP_TOPICS)}:
            pieces.append(msgspec.json.encode(part)[1:-1])
    except UnicodeEncodeError as error:
        raise UnencodableRemotingError(_WHAT, str(error)) from error
    # Of static topics, which RocketMQ's brokers send along.
    mappings = b'"mappingDataVersion":%s,"topicQueueMappingDetailMap":{}' % encode_body(NO_VERSION)
    return (
        b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":%s,'
        b'"topicConfigTable":{%s},%s,"topicQueueMappingInfoMap":{}}}'
        % (encode_body(version), b",".join(pieces), mappings)
    )


def encode_compressed(body: RegisterBrokerBody, *, has_mappings: bool = True) -> bytes:
    """Returns the compressed form. Raises UnencodableRemotingError.

    Senders from 5.0 on set `has_mappings`.
    """
    encode_body(body)  # Raises for values that cannot be written.
    topics = [_topic_text(config) for config in body.topics.topic_configs.values()]
    version = body.topics.data_version or NO_VERSION
    pieces = [*_sized(encode_body(version)), _INT32.pack(len(topics))]
    for topic in topics:
        pieces += _sized(topic)
    pieces += _sized(msgspec.json.encode(body.filter_servers))
    if has_mappings:
        mappings = (body.topics.topic_queue_mapping_info_map or {}).values()
        pieces.append(_INT32.pack(len(mappings)))
        for mapping in mappings:
            pieces += _sized(msgspec.json.encode(mapping))
    return zlib.compress(b"".join(pieces))


def decode_compressed(data: bytes | memoryview) -> RegisterBrokerBody:
    """Returns the body of the compressed form. Raises RemotingFormatError."""
    pieces = _Pieces(_inflated(data))
    version = decode_body(DataVersion, pieces.next())
    topics = [_topic(piece) for piece in pieces.counted()]
    servers = read_json(pieces.next(), _WHAT)
    mappings = {}
    if not pieces.are_read:
        for piece in pieces.counted():
            mapping = read_json(piece, _WHAT)
            name = mapping.get("topic") if isinstance(mapping, dict) else None
            if not isinstance(name, str):
                raise RemotingFormatError(_WHAT, "a queue mapping names no topic")
            mappings[name] = mapping
    try:
        filter_servers = msgspec.convert([] if servers is None else servers, tuple[str, ...])
    except msgspec.ValidationError as error:
        raise RemotingFormatError(_WHAT, f"filter servers: {error}") from error
    table = TopicConfigTable(
        topic_configs={config.topic: config for config in topics},
        data_version=version,
        topic_queue_mapping_info_map=mappings,
    )
    return RegisterBrokerBody(table, filter_servers)


def _inflated(data: bytes | memoryview) -> bytes:
    stream = zlib.decompressobj()
    try:
        inflated = stream.decompress(data, INFLATED_BYTES_MAX)
    except zlib.error as error:
        raise RemotingFormatError(_WHAT, str(error)) from error
    if not stream.eof or stream.unused_data:
        raise RemotingFormatError(
            _WHAT, f"its stream is cut, or holds more than {INFLATED_BYTES_MAX} bytes"
        )
    return inflated


def _topic_text(config: TopicConfig) -> bytes:
    if " " in config.topic:
        raise UnencodableRemotingError(_WHAT, f"the topic {config.topic!r} has a blank")
    attributes = msgspec.json.encode(config.attributes).decode()
    numbers = f"{config.read_queue_nums} {config.write_queue_nums} {config.perm}"
    return f"{config.topic} {numbers} {config.topic_filter_type} {attributes}".encode()


def _topic(piece: memoryview) -> TopicConfig:
    """Returns the topic of `name readQueues writeQueues perm filterType [attributes]`.

    Blanks separate the parts. Raises RemotingFormatError.
    """
    try:
        parts = str(piece, "utf-8").split(" ", _TOPIC_PARTS_MAX - 1)
    except UnicodeDecodeError as error:
        raise RemotingFormatError(_WHAT, f"a topic: {error}") from error
    if len(parts) < _TOPIC_PARTS_MIN:
        raise RemotingFormatError(
            _WHAT, f"a topic has {len(parts)} parts, but needs at least {_TOPIC_PARTS_MIN}"
        )
    names = ("topicName", "readQueueNums", "writeQueueNums", "perm", "topicFilterType")
    fields: dict[str, object] = dict(zip(names, parts, strict=False))
    if len(parts) == _TOPIC_PARTS_MAX:
        attributes = read_json(parts[5].encode(), _WHAT)
        fields["attributes"] = {} if attributes is None else attributes
    try:
        return msgspec.convert(fields, prepared(TopicConfig), strict=False)
    except msgspec.ValidationError as error:
        raise RemotingFormatError(_WHAT, f"a topic: {error}") from error


def _sized(piece: bytes) -> tuple[bytes, bytes]:
    return _INT32.pack(len(piece)), piece


class _Pieces:
    """The content of a stream: counts, and pieces that each follow their length."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._position = 0

    @property
    def are_read(self) -> bool:
        return self._position == len(self._data)

    def counted(self) -> Iterator[memoryview]:
        """Yields the pieces after a count. Raises RemotingFormatError."""
        for _ in range(self._number()):
            yield self.next()

    def next(self) -> memoryview:
        """Returns the next piece. Raises RemotingFormatError."""
        size = self._number()
        begin, end = self._position, self._position + size
        if not begin <= end <= len(self._data):
            raise RemotingFormatError(
                _WHAT, f"a piece of {size} bytes begins at byte {begin} of {len(self._data)}"
            )
        self._position = end
        return self._data[begin:end]

    def _number(self) -> int:
        begin, self._position = self._position, self._position + _INT32.size
        if self._position > len(self._data):
            raise RemotingFormatError(_WHAT, f"it ends at byte {len(self._data)} in a number")
        (number,) = _INT32.unpack_from(self._data, begin)
        return int(number)

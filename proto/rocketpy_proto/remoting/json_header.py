"""JSON form of a command's header. Source: docs/design/remoting.md section 1.2."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import msgspec

from rocketpy_proto.model.codes import Language
from rocketpy_proto.remoting.command import RemotingCommand, Serialization
from rocketpy_proto.remoting.errors import UnencodableRemotingError
from rocketpy_proto.remoting.json_text import DECLARED_BY_PARSERS, check_depth, format_error
from rocketpy_proto.struct_types import Int32

_WHAT = "JSON header"
_NUMBERS = struct.Struct(">iiii")
_TEXTS = {True: "true", False: "false"}


class _Header(msgspec.Struct, frozen=True):
    """The common fields of both forms."""

    opaque: Int32
    code: Int32 = 0
    language: object = None
    version: Int32 = 0
    flag: Int32 = 0
    remark: str | None = None


class _UsualHeader(_Header, frozen=True):
    """A header as RocketMQ's servers and clients write it, without conversion."""

    # The name on the wire.
    extFields: dict[str, str] | None = None  # noqa: N815


class _JsonHeader(_Header, frozen=True):
    """Any header that Java accepts: it converts numbers to texts and texts to numbers."""

    extFields: dict[str, str | int | float | bool | None] | None = None  # noqa: N815


_DECODER = msgspec.json.Decoder(_JsonHeader, strict=False)
_USUAL_DECODER = msgspec.json.Decoder(_UsualHeader)


def encode_json_header(command: RemotingCommand, opaque: int) -> bytes:
    """Returns strict JSON with the fields that Java writes. Raises UnencodableRemotingError."""
    header: dict[str, object] = {
        "code": command.code,
        "language": command.language.name,
        "version": command.version,
        "opaque": opaque,
        "flag": command.flag,
    }
    if command.remark is not None:
        header["remark"] = command.remark
    header["serializeTypeCurrentRPC"] = "JSON"
    if command.ext_fields:
        header["extFields"] = command.ext_fields
    try:
        # Only for its check of the ranges.
        _NUMBERS.pack(command.code, command.version, opaque, command.flag)
        return msgspec.json.encode(header)
    except (struct.error, UnicodeEncodeError) as error:
        raise UnencodableRemotingError(_WHAT, str(error)) from error


def decode_json_header(encoded: memoryview, body: memoryview) -> RemotingCommand:
    """Returns the command. Raises RemotingFormatError, also if `opaque` is missing.

    Unknown fields are left out, and an unknown language is OTHER.
    """
    check_depth(encoded, _WHAT)
    header: _Header
    fields: Mapping[str, str]
    try:
        usual = _USUAL_DECODER.decode(encoded)
        header, fields = usual, usual.extFields or {}
    except DECLARED_BY_PARSERS:
        header, fields = _converted(encoded)
    return RemotingCommand(
        code=header.code,
        opaque=header.opaque,
        flag=header.flag,
        language=_language(header.language),
        version=header.version,
        remark=header.remark,
        ext_fields=fields,
        body=body,
        serialization=Serialization.JSON,
    )


def _converted(encoded: memoryview) -> tuple[_Header, Mapping[str, str]]:
    try:
        header = _DECODER.decode(encoded)
    except DECLARED_BY_PARSERS as error:
        raise format_error(_WHAT, error) from error
    fields = header.extFields or {}
    return header, {name: _text(value) for name, value in fields.items() if value is not None}


def _text(value: str | float | bool) -> str:
    if isinstance(value, str):
        return value
    return _TEXTS[value] if isinstance(value, bool) else str(value)


def _language(name: object) -> Language:
    """Returns the language of a name in any case, or of a number; OTHER for any other value."""
    if isinstance(name, int) and name in set(Language):
        return Language(name)
    return Language.__members__.get(str(name).upper(), Language.OTHER)

"""Binary form of a command's header, ROCKETMQ.

    code 2 | language 1 | version 2 | opaque 4 | flag 4 | remark length 4 | remark
    | length of all fields 4 | fields: name length 2, name, value length 4, value; ...

A length of 0 means null. Source: docs/design/remoting.md section 1.3.
"""

from __future__ import annotations

import struct

from rocketpy_proto.model.codes import Language
from rocketpy_proto.remoting.command import RemotingCommand, Serialization
from rocketpy_proto.remoting.errors import RemotingFormatError, UnencodableRemotingError

_WHAT = "binary header"
_HEAD = struct.Struct(">hbhii")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_LANGUAGES = {language.value: language for language in Language}


def encode_binary_header(command: RemotingCommand, opaque: int) -> bytes:
    """Returns the header's bytes. Raises UnencodableRemotingError.

    A code above 32767 does not fit and raises as well; such commands need JSON.
    """
    try:
        head = _HEAD.pack(command.code, command.language, command.version, opaque, command.flag)
        fields = b"".join(
            _sized(_INT16, name) + _sized(_INT32, value)
            for name, value in command.ext_fields.items()
            if name and value
        )
        return b"".join(
            (head, _sized(_INT32, command.remark or ""), _INT32.pack(len(fields)), fields)
        )
    except (struct.error, UnicodeEncodeError) as error:
        raise UnencodableRemotingError(_WHAT, str(error)) from error


def decode_binary_header(encoded: memoryview, body: memoryview) -> RemotingCommand:
    """Returns the command. Raises RemotingFormatError."""
    try:
        code, language, version, opaque, flag = _HEAD.unpack_from(encoded)
        reader = _Reader(encoded, _HEAD.size)
        remark = reader.text(_INT32)
        fields_end = reader.size(_INT32) + reader.position
        if fields_end != len(encoded):
            raise RemotingFormatError(
                _WHAT, f"its fields end at byte {fields_end}, but it has {len(encoded)} bytes"
            )
        fields = {}
        while reader.position < fields_end:
            name, value = reader.text(_INT16), reader.text(_INT32)
            if name and value:
                fields[name] = value
    except (struct.error, UnicodeDecodeError) as error:
        raise RemotingFormatError(_WHAT, str(error)) from error
    return RemotingCommand(
        code=code,
        opaque=opaque,
        flag=flag,
        language=_LANGUAGES.get(language, Language.OTHER),
        version=version,
        remark=remark or None,
        ext_fields=fields,
        body=body,
        serialization=Serialization.ROCKETMQ,
    )


def _sized(size: struct.Struct, text: str) -> bytes:
    encoded = text.encode()
    return size.pack(len(encoded)) + encoded


class _Reader:
    """A reader of texts that each follow their length."""

    def __init__(self, encoded: memoryview, position: int) -> None:
        self.encoded = encoded
        self.position = position

    def size(self, kind: struct.Struct) -> int:
        """Returns the length of the next text.

        Raises RemotingFormatError, and struct.error if the bytes end before the length.
        """
        (size,) = kind.unpack_from(self.encoded, self.position)
        self.position += kind.size
        left = len(self.encoded) - self.position
        if not 0 <= size <= left:
            raise RemotingFormatError(
                _WHAT, f"a text at byte {self.position} has {size} bytes, but {left} are left"
            )
        return int(size)

    def text(self, kind: struct.Struct) -> str:
        """Returns the next text. Raises as `size` does, and UnicodeDecodeError."""
        end = self.size(kind) + self.position
        text = str(self.encoded[self.position : end], "utf-8")
        self.position = end
        return text

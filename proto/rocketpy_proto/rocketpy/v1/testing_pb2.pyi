from rocketpy_proto.rocketpy.v1 import common_pb2 as _common_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AdvanceClockRequest(_message.Message):
    __slots__ = ("advance_ms",)
    ADVANCE_MS_FIELD_NUMBER: _ClassVar[int]
    advance_ms: int
    def __init__(self, advance_ms: _Optional[int] = ...) -> None: ...

class AdvanceClockResponse(_message.Message):
    __slots__ = ("status", "now_ms", "ahead_ms")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    AHEAD_MS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    now_ms: int
    ahead_ms: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., now_ms: _Optional[int] = ..., ahead_ms: _Optional[int] = ...) -> None: ...

class ForgetWritersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ForgetWritersResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ...) -> None: ...

from rocketpy_proto.rocketpy.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SentBackTo(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SENT_BACK_TO_UNSPECIFIED: _ClassVar[SentBackTo]
    RETRY: _ClassVar[SentBackTo]
    DEAD_LETTER: _ClassVar[SentBackTo]
    DROPPED: _ClassVar[SentBackTo]
SENT_BACK_TO_UNSPECIFIED: SentBackTo
RETRY: SentBackTo
DEAD_LETTER: SentBackTo
DROPPED: SentBackTo

class SendBackRequest(_message.Message):
    __slots__ = ("consumer_group", "messages", "max_reconsume_times")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_RECONSUME_TIMES_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    messages: _containers.RepeatedCompositeFieldContainer[MessageToSendBack]
    max_reconsume_times: int
    def __init__(self, consumer_group: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[MessageToSendBack, _Mapping]]] = ..., max_reconsume_times: _Optional[int] = ...) -> None: ...

class MessageToSendBack(_message.Message):
    __slots__ = ("commit_log_offset", "delay_level", "origin_msg_id", "origin_topic")
    COMMIT_LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DELAY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_MSG_ID_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_TOPIC_FIELD_NUMBER: _ClassVar[int]
    commit_log_offset: int
    delay_level: int
    origin_msg_id: str
    origin_topic: str
    def __init__(self, commit_log_offset: _Optional[int] = ..., delay_level: _Optional[int] = ..., origin_msg_id: _Optional[str] = ..., origin_topic: _Optional[str] = ...) -> None: ...

class SentBackMessage(_message.Message):
    __slots__ = ("status", "to")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    to: SentBackTo
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., to: _Optional[_Union[SentBackTo, str]] = ...) -> None: ...

class SendBackResponse(_message.Message):
    __slots__ = ("status", "messages")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    messages: _containers.RepeatedCompositeFieldContainer[SentBackMessage]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., messages: _Optional[_Iterable[_Union[SentBackMessage, _Mapping]]] = ...) -> None: ...

"""Errors that the broker declares.

    BrokerError                       code, remark; mapped to a response by the server
    ├── StoreError
    │   ├── StoreDirectoryError       a file or directory of the store is unusable
    │   ├── StoreLockedError          another broker uses the directory
    │   ├── StoreClosedError          not open, stopped, or read-only after a failed write
    │   │   └── QueueGrowthError      a queue without space, or without a file
    │   ├── StoreReadError            the disk does not return stored bytes
    │   ├── StoreBusyError            too many bytes wait for the disk
    │   ├── StagingFullError          staged batches use all their disk space
    │   ├── TooManyJobsError          too many jobs stage batches
    │   ├── StagedIllegalError        an attempt that differs from the staged one
    │   ├── UnconfirmedError          stored, but not confirmed in time
    │   │   └── FlushTimeoutError     stored, but not on disk in time
    │   ├── TimerRefusedError         messages with a delivery time are refused
    │   ├── LogOffsetError            an offset outside the log
    │   └── RecordIllegalError        an invalid block
    ├── TopicNotExistError
    ├── MessageNotExistError          an unknown message id
    ├── TopicIllegalError             an invalid topic name or configuration
    ├── TopicAttributeError           an attribute that a topic cannot have or lose
    ├── SubscriptionGroupNotExistError
    ├── SubscriptionParseError        an invalid filter expression
    ├── SubscriptionNotExistError     a pull without a subscription of the group
    ├── SubscriptionNotLatestError    a group's subscription that is older than a member's
    ├── FilterDataNotExistError       an unreadable subscription of a group
    ├── OffsetNotFoundError           a group without progress in a queue
    ├── QueueIdIllegalError
    ├── RecallIllegalError            a handle of no message that can be recalled
    ├── PermissionDeniedError         a topic or queue without the permission
    ├── TransactionEndError           a transaction that cannot be ended as requested
    ├── SendBackError                 a message that was not sent back, or not confirmed
    ├── ParameterIllegalError         any other illegal value of a request
    │   └── ParameterConflictError    a value that does not go with another one
    ├── ClientsFullError              a limit of clients, groups or locks is reached
    ├── AnswerTooLargeError           an answer that no frame holds
    ├── NoConsumerError               a consumer group without clients
    ├── NoticesEndedError             a stream of notices that the broker ends
    ├── ConfigFileError               an unreadable configuration file
    └── AccessDeniedError             a wrong signature, or a user without the permission

Other modules add errors of their own. The text of an error names the wrong value and the remedy.
"""

from __future__ import annotations

from pathlib import Path

from rocketpy_proto.model import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rocketpy_proto.model.codes import ResponseCode

REMARK_CHARACTERS_MAX = 1_000
# A long remark loses its middle: it starts with the fault and ends with the remedy.
_END = 400
_BEGIN = REMARK_CHARACTERS_MAX - len(" ... ") - _END


class BrokerError(Exception):
    """Base of all declared errors. `code` is the response code that the client receives."""

    code: ResponseCode = ResponseCode.SYSTEM_ERROR

    def __init__(self, remark: str) -> None:
        is_long = len(remark) > REMARK_CHARACTERS_MAX
        self.remark = f"{remark[:_BEGIN]} ... {remark[-_END:]}" if is_long else remark
        super().__init__(self.remark)

    def __reduce__(self) -> tuple[object, ...]:
        # A copy is made without __init__, since each subclass has its own parameters.
        kind = type(self)
        return kind.__new__, (kind, *self.args), self.__dict__


class StoreError(BrokerError):
    """Base of the store's errors."""


class StoreDirectoryError(StoreError):
    """A file or directory of the store is missing, misplaced, or of a wrong size."""

    def __init__(self, path: Path, reason: str, way_out: str) -> None:
        super().__init__(f"{path}: {reason}; {way_out}")
        self.path = path
        self.reason = reason


class StoreLockedError(StoreError):
    """Another process uses this directory."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"{folder} is in use by another broker, which holds its lock. Stop that broker or "
            "give this one another --data directory"
        )
        self.path = folder


class StoreClosedError(StoreError):
    """The store accepts no writes now."""

    code = ResponseCode.SERVICE_NOT_AVAILABLE


class StoreBusyError(StoreError):
    """The disk is too slow for the sends; the block was not stored."""

    code = ResponseCode.SYSTEM_BUSY

    def __init__(self, behind_bytes: int, behind_bytes_max: int) -> None:
        super().__init__(
            f"[PC_SYNCHRONIZED]broker busy: {behind_bytes} bytes wait for the disk, limit "
            f"{behind_bytes_max}. Send again later"
        )
        self.behind_bytes = behind_bytes
        self.behind_bytes_max = behind_bytes_max


class StagingFullError(StoreError):
    """Uncommitted batches use all the disk space of staging."""

    def __init__(self, used_bytes: int, job_bytes: int, bytes_max: int) -> None:
        # Other batches end and free space. A batch larger than the limit never fits.
        is_own = job_bytes > bytes_max
        self.code = ResponseCode.SERVICE_NOT_AVAILABLE if is_own else ResponseCode.SYSTEM_BUSY
        super().__init__(
            f"staging is full: uncommitted batches take {used_bytes} bytes and this one "
            f"{job_bytes}, limit {bytes_max}. Restart the broker with a larger "
            "--staging-bytes-max, or write smaller batches"
        )


class TooManyJobsError(StoreError):
    """The limit of jobs that stage batches is reached."""

    code = ResponseCode.SYSTEM_BUSY

    def __init__(self, jobs_max: int, of: str = "") -> None:
        super().__init__(f"too many jobs {of}stage batches, limit {jobs_max}. Send again later")


class StagedIllegalError(StoreError):
    """A named attempt differs from the staged one; nothing was changed."""

    code = ResponseCode.MESSAGE_ILLEGAL


class UnconfirmedError(StoreError):
    """The block is stored, but not confirmed in time; it may be confirmed later."""


class FlushTimeoutError(UnconfirmedError):
    """The disk did not confirm the block in time."""

    code = ResponseCode.FLUSH_DISK_TIMEOUT

    def __init__(self, timeout_ms: int) -> None:
        super().__init__(f"stored, but the disk did not confirm the block within {timeout_ms} ms")
        self.timeout_ms = timeout_ms


class TimerRefusedError(StoreError):
    """Messages with a delivery time are refused; the block was not stored."""


class LogOffsetError(StoreError):
    """The physical offset of a read is outside the log, or was removed from it."""

    def __init__(self, offset: int, begin: int, end: int) -> None:
        super().__init__(
            f"the physical offset {offset} is not in the log, which goes from {begin} to {end}: "
            "its segment was cleaned or moved away. Restore it, or read another offset"
        )
        self.offset = offset
        self.begin = begin
        self.end = end


class RecordIllegalError(StoreError):
    """The block is invalid; nothing of it was stored."""

    code = ResponseCode.MESSAGE_ILLEGAL


class TopicNotExistError(BrokerError):
    """The topic does not exist."""

    code = ResponseCode.TOPIC_NOT_EXIST

    def __init__(self, topic: str) -> None:
        remedy = f"create it first, for instance with `rocketpy topic create {topic:.200}`"
        if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
            remedy = "the broker creates it for the first such message of the group"
        super().__init__(f"topic {topic!r:.200} does not exist; {remedy}")
        self.topic = topic


class SubscriptionGroupNotExistError(BrokerError):
    """The consumer group does not exist, and the broker does not create groups itself."""

    code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

    def __init__(self, group: str) -> None:
        super().__init__(
            f"consumer group {group!r:.200} does not exist; create it first, for instance with "
            f"`rocketpy group create {group:.200}`"
        )
        self.group = group


class SubscriptionParseError(BrokerError):
    """The filter of a request cannot be parsed; nothing was read."""

    code = ResponseCode.SUBSCRIPTION_PARSE_FAILED

    def __init__(self, reason: str) -> None:
        super().__init__(f"parse the consumer's subscription failed: {reason}")


class SubscriptionNotExistError(BrokerError):
    """The members of a group have not sent the subscription that the request uses."""

    code = ResponseCode.SUBSCRIPTION_NOT_EXIST

    def __init__(self, group: str, topic: str | None = None) -> None:
        """Names a group without members if `topic` is None, else the missing subscription."""
        missing = "group info" if topic is None else "subscription"
        whose = f"group {group!r}" if topic is None else f"group {group!r} to topic {topic!r}"
        super().__init__(
            f"the consumer's {missing} not exist: {whose}; send a heartbeat that subscribes, "
            "or pull with a filter of your own"
        )


class SubscriptionNotLatestError(BrokerError):
    """The broker has an older subscription than the caller."""

    code = ResponseCode.SUBSCRIPTION_NOT_LATEST

    def __init__(self, group: str, topic: str, known: int, wanted: int) -> None:
        super().__init__(
            f"the consumer's subscription not latest: group {group!r} subscribes to topic "
            f"{topic!r} with version {known}, the pull has {wanted}. Send a heartbeat first"
        )


class FilterDataNotExistError(BrokerError):
    """The expression of a group's subscription cannot be parsed."""

    code = ResponseCode.FILTER_DATA_NOT_EXIST

    def __init__(self, group: str, topic: str, reason: str) -> None:
        super().__init__(
            "The broker's consumer filter data is not exist!Your expression may be wrong! "
            f"Group {group!r}, topic {topic!r}: {reason}"
        )


class OffsetNotFoundError(BrokerError):
    """The group has no committed offset in the queue, and 0 may not replace it."""

    code = ResponseCode.QUERY_NOT_FOUND

    def __init__(self, group: str, topic: str, queue_id: int) -> None:
        super().__init__(
            f"Not found: group {group!r} has no progress in queue {queue_id} of topic {topic!r}; "
            "start at the consumer's configured position"
        )


class MessageNotExistError(BrokerError):
    """The store has no message with this id, or no longer has it."""

    code = ResponseCode.QUERY_NOT_FOUND

    def __init__(self, message_id: str, reason: str) -> None:
        super().__init__(f"no message here has the id {message_id!r:.200}: {reason}")


class TopicIllegalError(BrokerError):
    """The topic name or the topic configuration is invalid."""

    code = ResponseCode.INVALID_PARAMETER


class TopicAttributeError(BrokerError):
    """The attributes are invalid or unchangeable; nothing was changed."""


class QueueIdIllegalError(BrokerError):
    """The queue id is outside the topic's queues."""

    code = ResponseCode.INVALID_PARAMETER

    def __init__(self, topic: str, queue_id: int, queue_nums: int) -> None:
        there = f"not in 0..{queue_nums - 1}" if queue_nums > 0 else "not there: it has no queues"
        way_out = "name an existing queue, or add queues to the topic"
        super().__init__(f"queue id {queue_id} of topic {topic!r} is {there}; {way_out}")
        self.queue_id = queue_id


class RecallIllegalError(BrokerError):
    """The recall handle names no message that can be recalled."""

    code = ResponseCode.ILLEGAL_OPERATION

    def __init__(self, reason: str) -> None:
        super().__init__(f"recall failed, the handle is illegal: {reason}")


class PermissionDeniedError(BrokerError):
    """Clients may not write or read the topic."""

    code = ResponseCode.NO_PERMISSION


class TransactionEndError(BrokerError):
    """The caller has no such open transaction."""

    def __init__(self, remark: str, code: ResponseCode = ResponseCode.SYSTEM_ERROR) -> None:
        super().__init__(remark)
        self.code = code


class SendBackError(BrokerError):
    """The message was not sent back, or was stored but not confirmed on disk."""


class ParameterIllegalError(BrokerError):
    """The value of a parameter is not accepted."""

    code = ResponseCode.INVALID_PARAMETER
    _link = "accepted is"

    def __init__(self, name: str, value: object, accepted: str) -> None:
        super().__init__(f"{name} is {value!r:.200}, {self._link} {accepted}")
        self.name = name
        self.value = value


class ParameterConflictError(ParameterIllegalError):
    """The value does not go with another one; the text names both and the way out."""

    _link = "but"


class ClientsFullError(BrokerError):
    """A limit of client registrations is reached; nothing was changed."""

    code = ResponseCode.SYSTEM_BUSY

    def __init__(self, name: str, count_max: int, way_out: str) -> None:
        super().__init__(f"{name} would exceed the limit {count_max}; {way_out}")
        self.name = name
        self.count_max = count_max


class AnswerTooLargeError(BrokerError):
    """The answer to a request does not fit into a frame."""

    def __init__(self, what: str, bytes_max: int) -> None:
        super().__init__(
            f"{what} takes too many bytes, limit {bytes_max}. Request its entries one by one"
        )
        self.bytes_max = bytes_max


class NoConsumerError(BrokerError):
    """The consumer group has no clients."""

    def __init__(self, group: str) -> None:
        super().__init__(f"no consumer for this group, {group}; start one, or check its heartbeats")
        self.group = group


class NoticesEndedError(BrokerError):
    """The broker ends a stream of notices."""

    code = ResponseCode.ILLEGAL_OPERATION


class ConfigFileError(BrokerError):
    """A configuration file cannot be read, and neither can its backup, if it has one."""

    def __init__(self, path: Path, reason: str, way_out: str | None = None) -> None:
        """Takes in `way_out`: the remedy for a file without a backup."""
        kept = f"{path} and its backup" if way_out is None else str(path)
        advice = way_out or "repair the file, or move both away to start with defaults"
        super().__init__(f"{kept} cannot be read ({reason}); {advice}")
        self.path = path


class AccessDeniedError(BrokerError):
    """Base of refusals by a user's signature or permissions; nothing was done."""

    code = ResponseCode.NO_PERMISSION

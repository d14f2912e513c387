"""Every error that the broker declares. Holds no state.

    BrokerError                       code, remark; mapped to a response by the server
    ├── StoreError
    │   ├── StoreDirectoryError       a file or folder of the store cannot be used
    │   ├── StoreLockedError          another broker has the directory
    │   ├── StoreClosedError          not open, stopped, or read-only after a failed write
    │   │   └── QueueGrowthError      a queue that has no room, or no file
    │   ├── StoreReadError            the disk does not give what lies on it
    │   ├── StoreBusyError            more waits for the disk than may wait
    │   ├── StagingFullError          staged blocks take all the space that they may
    │   ├── TooManyJobsError          as many jobs stage batches as may
    │   ├── StagedIllegalError        an attempt that is not staged as it is named
    │   ├── FlushTimeoutError         stored, but not known to be on disk in time
    │   ├── TimerRefusedError         messages with a delivery time are not taken now
    │   ├── LogOffsetError            the log does not hold what it was to be read from
    │   └── RecordIllegalError        a block that may not be stored
    ├── TopicNotExistError
    ├── MessageNotExistError          no message has that id
    ├── TopicIllegalError             a topic name or configuration that cannot be
    ├── TopicAttributeError           an attribute that a topic cannot have, or not be rid of
    ├── SubscriptionGroupNotExistError
    ├── SubscriptionParseError        a filter's expression that cannot be read
    ├── SubscriptionNotExistError     a group that does not subscribe to what it pulls
    ├── SubscriptionNotLatestError    a group's subscription that is older than a member's
    ├── FilterDataNotExistError       a group's subscription that cannot be read
    ├── OffsetNotFoundError           a group that has no progress in a queue
    ├── QueueIdIllegalError
    ├── RecallIllegalError            a handle that names no message that can be taken back
    ├── PermissionDeniedError         topic or queue may not be written or read
    ├── TransactionEndError           a transaction that cannot be ended as was asked
    ├── ParameterIllegalError         any other value of a request
    ├── ClientsFullError              as many clients, groups or locks are registered as may
    ├── NoConsumerError               a consumer group without clients
    ├── NoticesEndedError             the broker speaks to a client no more on this stream
    ├── ConfigFileError               a configuration file that cannot be read
    └── MessageFileError              a file of messages that cannot be imported

The text of an error names the value that was wrong and what to do about it.
"""

from __future__ import annotations

from pathlib import Path

from rocketpy_broker.response_code import ResponseCode

REMARK_CHARACTERS_MAX = 1_000
# What was wrong stands at the begin, what to do at the end.
_REMARK_END_CHARACTERS = 400


def shortened(remark: str) -> str:
    """Returns a remark without its middle, where a value in it is that long."""
    if len(remark) <= REMARK_CHARACTERS_MAX:
        return remark
    end = remark[-_REMARK_END_CHARACTERS:]
    return f"{remark[: REMARK_CHARACTERS_MAX - len(end) - 5]} ... {end}"


class BrokerError(Exception):
    """Base of all declared errors. `code` is the number that a client gets to see."""

    code: ResponseCode = ResponseCode.SYSTEM_ERROR

    def __init__(self, remark: str) -> None:
        self.remark = shortened(remark)
        super().__init__(self.remark)


class StoreError(BrokerError):
    """The store cannot do what was asked."""


class StoreDirectoryError(StoreError):
    """A file or folder of the store is missing, misplaced, or of a wrong size."""

    def __init__(self, path: Path, reason: str, way_out: str) -> None:
        super().__init__(f"{path}: {reason}; {way_out}")
        self.path = path
        self.reason = reason


class StoreLockedError(StoreError):
    """Another process serves this directory."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"{folder} is in use by another broker, which holds its lock; "
            "stop that broker or give this one another --data directory"
        )
        self.path = folder


class StoreClosedError(StoreError):
    """The store takes no writes now."""

    code = ResponseCode.SERVICE_NOT_AVAILABLE


class StoreBusyError(StoreError):
    """The disk is too slow for what is sent; nothing of the block was stored."""

    code = ResponseCode.SYSTEM_BUSY

    def __init__(self, behind_bytes: int, behind_bytes_max: int) -> None:
        super().__init__(
            f"[PC_SYNCHRONIZED]broker busy: {behind_bytes} bytes wait for the disk, "
            f"the limit is {behind_bytes_max}; send again later"
        )
        self.behind_bytes = behind_bytes
        self.behind_bytes_max = behind_bytes_max


class StagingFullError(StoreError):
    """Blocks of batches that are not committed take all the disk space that they may."""

    def __init__(self, used_bytes: int, job_bytes: int, bytes_max: int) -> None:
        # Others' batches end, and make room; a batch of its own size never does.
        is_own = job_bytes > bytes_max
        self.code = ResponseCode.SERVICE_NOT_AVAILABLE if is_own else ResponseCode.SYSTEM_BUSY
        super().__init__(
            f"staging is full: batches that are not committed take {used_bytes} of {bytes_max} "
            f"bytes, and this one needs {job_bytes} of its own; restart the broker with a larger "
            "--staging-bytes-max, or write smaller batches"
        )


class TooManyJobsError(StoreError):
    """More jobs stage batches than may."""

    code = ResponseCode.SYSTEM_BUSY

    def __init__(self, jobs_max: int, of: str = "") -> None:
        super().__init__(f"{jobs_max} jobs {of}stage batches already; send again later")


class StagedIllegalError(StoreError):
    """An attempt that is not staged as it is named; nothing was done."""

    code = ResponseCode.MESSAGE_ILLEGAL


class FlushTimeoutError(StoreError):
    """The block is stored, and may get to the disk yet; it was not known to be there in time."""

    code = ResponseCode.FLUSH_DISK_TIMEOUT

    def __init__(self, timeout_ms: int) -> None:
        super().__init__(f"stored, but the disk did not confirm it within {timeout_ms} ms")
        self.timeout_ms = timeout_ms


class TimerRefusedError(StoreError):
    """Messages with a delivery time are not taken; nothing of the block was stored."""


class TimerNotEnabledError(TimerRefusedError):
    """None are."""

    def __init__(self) -> None:
        super().__init__("accurate timer message is not enabled, timerWheelEnable is false")


class TimerFullError(TimerRefusedError):
    """As many wait as may."""

    def __init__(self, waiting_count: int, sent_count: int, count_max: int) -> None:
        super().__init__(
            f"timer message is under flow control, {waiting_count} messages wait for their "
            f"delivery time and {sent_count} more were sent, the limit is {count_max}; send again "
            "when some are delivered, or restart the broker with a larger --timer-pending-max"
        )
        self.waiting_count = waiting_count
        self.count_max = count_max


class LogOffsetError(StoreError):
    """The log was to be read from a physical offset that it has no more, or never had."""

    def __init__(self, offset: int, begin: int, end: int) -> None:
        super().__init__(
            f"the physical offset {offset} is not in the log, which goes from {begin} to {end}: "
            "its segment was cleaned or moved away; put it back, or read what is there"
        )
        self.offset = offset
        self.begin = begin
        self.end = end


class RecordIllegalError(StoreError):
    """A block that may not be stored: nothing of it was written."""

    code = ResponseCode.MESSAGE_ILLEGAL


class TopicNotExistError(BrokerError):
    """No such topic."""

    code = ResponseCode.TOPIC_NOT_EXIST

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"topic {topic!r:.200} does not exist; create it first, for instance with "
            f"`rocketpy topic create {topic:.200}`"
        )
        self.topic = topic


class SubscriptionGroupNotExistError(BrokerError):
    """No such consumer group, and groups are not made by their first use."""

    code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

    def __init__(self, group: str) -> None:
        super().__init__(
            f"consumer group {group!r:.200} does not exist; create it first, for instance with "
            f"`rocketpy group create {group:.200}`"
        )
        self.group = group


class SubscriptionParseError(BrokerError):
    """The filter of a request cannot be understood; nothing was read."""

    code = ResponseCode.SUBSCRIPTION_PARSE_FAILED

    def __init__(self, reason: str) -> None:
        super().__init__(f"parse the consumer's subscription failed: {reason}")


class SubscriptionNotExistError(BrokerError):
    """A group's subscription was asked for, and its members have sent none."""

    code = ResponseCode.SUBSCRIPTION_NOT_EXIST

    def __init__(self, group: str, topic: str | None = None) -> None:
        """Without `topic`, the group has no members at all."""
        missing = "group info" if topic is None else "subscription"
        whose = f"group {group!r}" if topic is None else f"group {group!r} to topic {topic!r}"
        super().__init__(
            f"the consumer's {missing} not exist: {whose}; send a heartbeat that subscribes, "
            "or pull with a filter of your own"
        )


class SubscriptionNotLatestError(BrokerError):
    """The broker knows an older subscription than the caller."""

    code = ResponseCode.SUBSCRIPTION_NOT_LATEST

    def __init__(self, group: str, topic: str, known: int, wanted: int) -> None:
        super().__init__(
            f"the consumer's subscription not latest: group {group!r} subscribes to topic "
            f"{topic!r} with version {known}, the pull has {wanted}; send a heartbeat first"
        )


class FilterDataNotExistError(BrokerError):
    """A group's subscription has an expression that cannot be read."""

    code = ResponseCode.FILTER_DATA_NOT_EXIST

    def __init__(self, group: str, topic: str, reason: str) -> None:
        super().__init__(
            "The broker's consumer filter data is not exist!Your expression may be wrong! "
            f"Group {group!r}, topic {topic!r}: {reason}"
        )


class OffsetNotFoundError(BrokerError):
    """Nothing is committed, and the queue does not stand for a beginning at 0."""

    code = ResponseCode.QUERY_NOT_FOUND

    def __init__(self, group: str, topic: str, queue_id: int) -> None:
        super().__init__(
            f"Not found: group {group!r} has no progress in queue {queue_id} of topic {topic!r}; "
            "begin where the consumer is told to"
        )


class MessageNotExistError(BrokerError):
    """No message has that id, or not any more."""

    def __init__(self, message_id: str, reason: str) -> None:
        super().__init__(f"no message here has the id {message_id!r:.200}: {reason}")
        self.message_id = message_id


class TopicIllegalError(BrokerError):
    """A topic name or a topic configuration that cannot be."""

    code = ResponseCode.INVALID_PARAMETER


class TopicAttributeError(BrokerError):
    """Attributes that a topic cannot have, or that cannot be changed; nothing was."""


class QueueIdIllegalError(BrokerError):
    """A queue id outside the topic's queues."""

    code = ResponseCode.INVALID_PARAMETER

    def __init__(self, topic: str, queue_id: int, queue_nums: int) -> None:
        there = f"not in 0..{queue_nums - 1}" if queue_nums > 0 else "not there: it has no queues"
        way_out = "name an existing queue, or add queues to the topic"
        super().__init__(f"queue id {queue_id} of topic {topic!r} is {there}; {way_out}")
        self.queue_id = queue_id


class RecallIllegalError(BrokerError):
    """A recall handle that names no message that can be taken back."""

    code = ResponseCode.ILLEGAL_OPERATION

    def __init__(self, reason: str) -> None:
        super().__init__(f"recall failed, the handle is illegal: {reason}")


class PermissionDeniedError(BrokerError):
    """The topic may not be written or read by clients."""

    code = ResponseCode.NO_PERMISSION


class TransactionEndError(BrokerError):
    """What was to be ended is no open transaction of the caller."""

    def __init__(self, remark: str, code: ResponseCode = ResponseCode.SYSTEM_ERROR) -> None:
        super().__init__(remark)
        self.code = code


class SendBackError(BrokerError):
    """A message that could not be sent back, or was stored and is not known to be on disk."""


class ParameterIllegalError(BrokerError):
    """A value of the request is out of its range."""

    code = ResponseCode.INVALID_PARAMETER

    def __init__(self, name: str, value: object, accepted: str) -> None:
        super().__init__(f"{name} is {value!r:.200}, accepted is {accepted}")
        self.name = name
        self.value = value


class ClientsFullError(BrokerError):
    """What clients have registered takes all the room that it may; nothing was done."""

    code = ResponseCode.SYSTEM_BUSY

    def __init__(self, name: str, count_max: int, way_out: str) -> None:
        super().__init__(f"{name} would be more than {count_max}; {way_out}")
        self.name = name
        self.count_max = count_max


class NoConsumerError(BrokerError):
    """Nobody consumes with this group."""

    def __init__(self, group: str) -> None:
        super().__init__(
            f"no consumer for this group, {group}; start one, or see to its heartbeats"
        )
        self.group = group


class NoticesEndedError(BrokerError):
    """A stream of notices that the broker ends."""

    code = ResponseCode.ILLEGAL_OPERATION


class ConfigFileError(BrokerError):
    """Neither a configuration file nor its backup can be read."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"{path} and its backup cannot be read ({reason}); "
            "mend the file, or move both away to start with defaults"
        )
        self.path = path


class MessageFileError(BrokerError):
    """A file whose messages cannot be imported; nothing of it was."""

    code = ResponseCode.MESSAGE_ILLEGAL

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path

"""Errors that the connector declares.

    RocketpyError                 code; the text begins with it
    ├── OptionError               an option: name, value, accepted values
    ├── ColumnError               a column of the schema or of the rows to write
    ├── OffsetError               offsets that cannot be read, or do not fit the topic
    ├── DataLossError             unread messages of the query are lost
    ├── ConnectionFailedError     no broker answers
    ├── BrokerError               a broker refused: its response code and remark
    │   ├── BrokerBusyError       a temporary refusal
    │   ├── TopicNotExistError    a topic that does not exist there
    │   └── OtherStoreError       a broker with another store than the expected one
    ├── CommitError               a batch with tasks that do not match, or a late batch
    ├── OversizeMessageError      a message above the broker's limit
    └── VersionError              a PySpark that this connector does not support

Spark shows an error's text after a Python traceback, so each text begins with a short stable code.
"""

from __future__ import annotations


class RocketpyError(Exception):
    """Base of all errors that the connector declares; the text begins with `code`."""

    code = "ROCKETPY"

    def __init__(self, text: str) -> None:
        super().__init__(f"{self.code}: {text}" if not text.startswith(self.code) else text)


class OptionError(RocketpyError):
    """An option that is unknown, missing, or has a value that is not accepted."""

    code = "ROCKETPY_OPTION"


class ColumnError(RocketpyError):
    """A column that is unknown, missing, of a wrong type, or has a value that cannot be sent."""

    code = "ROCKETPY_COLUMN"


class OffsetError(RocketpyError):
    """Offsets that cannot be read, or do not fit the topic's queues."""

    code = "ROCKETPY_OFFSET"


class DataLossError(RocketpyError):
    """Unread messages that are lost."""

    code = "ROCKETPY_DATA_LOSS"


class ConnectionFailedError(RocketpyError):
    """No answering broker at the endpoints, or a broken connection for too long.

    `is_lasting` means that a retry would fail the same way.
    """

    code = "ROCKETPY_CONNECTION"

    def __init__(self, text: str, *, is_lasting: bool = False) -> None:
        super().__init__(text)
        self.is_lasting = is_lasting


class BrokerError(RocketpyError):
    """A request that a broker refused.

    `response_code` is RocketMQ's number for the reason, None if it is unknown.
    """

    code = "ROCKETPY_BROKER"

    def __init__(self, text: str, *, response_code: int | None = None) -> None:
        super().__init__(text)
        self.response_code = response_code


class BrokerBusyError(BrokerError):
    """A broker that is busy or out of time; the same request may be sent again."""


class TopicNotExistError(BrokerError):
    """A topic that no broker has, or that the request's broker does not have."""


class OtherStoreError(BrokerError):
    """A broker with another store than the one that the query reads or the batch is in."""

    code = "ROCKETPY_STORE"


class CommitError(RocketpyError):
    """A batch with tasks that do not match, or that is too late for a commit."""

    code = "ROCKETPY_COMMIT"


class OversizeMessageError(RocketpyError):
    """A message above the broker's limit; nothing of its batch was sent."""

    code = "ROCKETPY_OVERSIZE"


class VersionError(RocketpyError):
    """A PySpark that is too old."""

    code = "ROCKETPY_VERSION"

    @classmethod
    def of(cls, version: str) -> VersionError:
        """Returns the error for a PySpark of this version."""
        return cls(
            f"PySpark {version} is too old, at least 4.2 is needed; "
            "install it with: pip install 'pyspark>=4.2'"
        )


# Text for the messages of a hidden queue.
OUT_OF_REACH = (
    "out of reach: they are stored, but the topic now has fewer read queues (readQueueNums); set "
    "readQueueNums to its former value"
)


def loss_advice(option: str = "failOnDataLoss") -> str:
    """Returns the advice about lost data, which ends every DataLossError."""
    return (
        f"to continue without them set option {option} to false, or start from a new checkpoint "
        "with startingOffsets earliest"
    )

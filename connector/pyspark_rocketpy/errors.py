"""Every error that the connector declares. Holds no state.

    RocketpyError                 code; the text begins with it
    ├── OptionError               an option: name, value, what is accepted
    ├── ColumnError               a column of the schema or of the rows to write
    ├── OffsetError               offsets that cannot be read, or do not fit the topic
    ├── DataLossError             messages that the query has not read are gone
    ├── ConnectionFailedError     no broker answers
    ├── BrokerError               a broker refused: its response code and remark
    │   ├── BrokerBusyError       a refusal that passes
    │   ├── TopicNotExistError    a topic that nobody there knows
    │   └── OtherStoreError       a broker with another store than the one that is meant
    ├── CommitError               a batch whose tasks do not fit together, or that is too late
    ├── OversizeMessageError      a message larger than the broker takes
    └── VersionError              a PySpark that this connector cannot work with

Spark shows an error's text behind a Python traceback, so each begins with a short stable code.
"""

from __future__ import annotations


class RocketpyError(Exception):
    """Base of all errors that the connector declares; `code` is how its text begins."""

    code = "ROCKETPY"

    def __init__(self, text: str) -> None:
        super().__init__(f"{self.code}: {text}" if not text.startswith(self.code) else text)


class OptionError(RocketpyError):
    """An option is unknown, missing, or has a value that is not accepted."""

    code = "ROCKETPY_OPTION"


class ColumnError(RocketpyError):
    """A column is unknown, missing, of a wrong type, or holds a value that cannot be sent."""

    code = "ROCKETPY_COLUMN"


class OffsetError(RocketpyError):
    """Offsets cannot be read, or do not fit the topic's queues."""

    code = "ROCKETPY_OFFSET"


class DataLossError(RocketpyError):
    """Messages that were still to be read are gone."""

    code = "ROCKETPY_DATA_LOSS"


class ConnectionFailedError(RocketpyError):
    """No broker answers at the endpoints, or the connection broke for too long.

    `is_lasting`: another try would meet the same.
    """

    code = "ROCKETPY_CONNECTION"

    def __init__(self, text: str, *, is_lasting: bool = False) -> None:
        super().__init__(text)
        self.is_lasting = is_lasting


class BrokerError(RocketpyError):
    """A broker refused a request.

    `response_code` is RocketMQ's number for the reason, where whoever raised it tells.
    """

    code = "ROCKETPY_BROKER"

    def __init__(self, text: str, *, response_code: int | None = None) -> None:
        super().__init__(text)
        self.response_code = response_code


class BrokerBusyError(BrokerError):
    """A broker cannot do it now, or not in time; the same request may be sent again."""


class TopicNotExistError(BrokerError):
    """No broker has the topic, or the one that was asked has not."""


class OtherStoreError(BrokerError):
    """A broker that serves another store than the one that a query reads, or a batch is for."""

    code = "ROCKETPY_STORE"


class CommitError(RocketpyError):
    """A batch whose tasks do not fit together, or that comes too late to be committed."""

    code = "ROCKETPY_COMMIT"


class OversizeMessageError(RocketpyError):
    """A message is larger than the broker takes; nothing of its batch was sent."""

    code = "ROCKETPY_OVERSIZE"


class VersionError(RocketpyError):
    """PySpark is too old."""

    code = "ROCKETPY_VERSION"

    @classmethod
    def of(cls, version: str) -> VersionError:
        """Returns the error for a PySpark of this version."""
        return cls(
            f"PySpark {version} is too old, at least 4.2 is needed; "
            "install it with: pip install 'pyspark>=4.2'"
        )


# Of messages of a queue that is hidden.
OUT_OF_REACH = (
    "out of reach: they are stored, but the topic has fewer queues for reading now "
    "(readQueueNums); give it its queues again"
)


def loss_advice(option: str = "failOnDataLoss") -> str:
    """What to do about lost data; the end of every DataLossError."""
    return (
        f"to go on without them set option {option} to false, or start from a new checkpoint "
        "with startingOffsets earliest"
    )

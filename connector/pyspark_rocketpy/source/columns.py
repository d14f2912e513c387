"""Columns of the source as Spark types, and their selection.

Source: docs/design/spark_python_datasource.md sections 4 and 5.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from pyspark_rocketpy.errors import ColumnError
from pyspark_rocketpy.options.foreign_names import SOURCE_FOREIGN_COLUMNS, column_hint
from rocketpy_proto.model.column_types import COLUMN_TYPES, NULLABLE_COLUMNS

# Not in the records: the broker that has the queue.
BROKER_NAME = "brokerName"
SOURCE_COLUMN_TYPES = {**COLUMN_TYPES, BROKER_NAME: pa.string()}
SPARK_TYPES = {name: from_arrow_type(kind) for name, kind in SOURCE_COLUMN_TYPES.items()}
# Most queries use none of these. Without them a row has half the bytes. `commitLogOffset` is for
# send_back, and `brokerName` makes the queues of a cluster unambiguous.
EXTRA_COLUMNS = frozenset({"properties", "offsetMsgId", "bornHost", "storeHost", "sysFlag"})
DEFAULT_COLUMNS = tuple(name for name in SOURCE_COLUMN_TYPES if name not in EXTRA_COLUMNS)
# Names all columns in option `columns`.
ALL_COLUMNS = "*"

MEANINGS = {
    "topic": "topic",
    "queueId": "queue within the topic",
    "queueOffset": "position within the queue",
    "body": "content, decompressed if it was sent compressed; as stored if `bodyError` is set",
    "tags": "the tag",
    "keys": "the keys",
    "properties": "all properties, including the ones in other columns",
    "msgId": "unique id given by the producer, else `offsetMsgId`",
    "offsetMsgId": "id made of store host and log offset",
    "bornTimestamp": "time of sending, by the producer's clock; null outside of 1678 to 2261",
    "storeTimestamp": "time of storing, by the broker's clock; null outside of 1678 to 2261",
    "bornHost": "address of the producer",
    "storeHost": "address of the broker that stored it",
    "reconsumeTimes": "number of times that it was sent back",
    "sysFlag": "RocketMQ's flag bits",
    "commitLogOffset": "position in the commit log",
    "messageGroup": "group of messages that keep their order",
    "bodyError": "reason that `body` could not be decompressed; null if there is no error",
    BROKER_NAME: "name of the broker that has the queue",
}
assert MEANINGS.keys() == SOURCE_COLUMN_TYPES.keys()


def column_table() -> str:
    """Returns the columns as a Markdown table, for the documentation."""
    rows = [
        f"| `{name}` | `{SPARK_TYPES[name].simpleString()}` "
        f"| {'yes' if name in NULLABLE_COLUMNS else ''} "
        f"| {'' if name in EXTRA_COLUMNS else 'yes'} | {meaning} |"
        for name, meaning in MEANINGS.items()
    ]
    return "\n".join(
        ["| column | type | nullable | default | meaning |", "|---|---|---|---|---|", *rows]
    )


def source_schema(columns: tuple[str, ...] | None) -> StructType:
    """Returns the schema of the default columns, or of the named ones in order.

    ALL_COLUMNS alone names all. Raises ColumnError.
    """
    names = DEFAULT_COLUMNS if columns is None else columns
    if names == (ALL_COLUMNS,):
        names = tuple(SOURCE_COLUMN_TYPES)
    for name in names:
        _check_known(name)
    return StructType(
        [StructField(name, SPARK_TYPES[name], name in NULLABLE_COLUMNS) for name in names]
    )


def _check_known(name: str) -> None:
    if name == ALL_COLUMNS:
        raise ColumnError(f"column {name!r} stands for all columns; name it alone")
    if name not in SOURCE_COLUMN_TYPES:
        hint = column_hint(name, SOURCE_COLUMN_TYPES, SOURCE_FOREIGN_COLUMNS)
        raise ColumnError(f"unknown column {name!r}; {hint}")


def check_schema(schema: StructType) -> None:
    """Raises ColumnError for unknown columns or other types.

    A user's schema may leave columns out and change their order.
    """
    for field in schema.fields:
        _check_known(field.name)
        expected = SPARK_TYPES[field.name]
        if field.dataType != expected:
            raise ColumnError(
                f"column {field.name!r} has type {field.dataType.simpleString()} in the schema, "
                f"accepted: {expected.simpleString()}; declare it so and cast it afterwards"
            )
        if not field.nullable and field.name in NULLABLE_COLUMNS:
            raise ColumnError(f"column {field.name!r} can be null; leave out NOT NULL")


def arrow_schema(schema: StructType) -> pa.Schema:
    """Returns the exact Arrow schema that Spark compares with."""
    return to_arrow_schema(schema, timezone="UTC")

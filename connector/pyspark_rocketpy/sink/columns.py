"""Columns of the sink, checked before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
    VariantType,
)

from pyspark_rocketpy.errors import ColumnError
from pyspark_rocketpy.options.foreign_names import SINK_FOREIGN_COLUMNS, column_hint

_STRING, _BINARY = StringType(), BinaryType()
_INTEGERS = (IntegerType(), ByteType(), ShortType(), LongType())
ACCEPTED: Mapping[str, tuple[DataType, ...]] = {
    "body": (_BINARY, _STRING),
    "topic": (_STRING,),
    "tags": (_STRING,),
    "keys": (ArrayType(_STRING), _STRING),
    "properties": (MapType(_STRING, _STRING),),
    "queueId": _INTEGERS,
    "brokerName": (_STRING,),
    "messageGroup": (_STRING,),
    "delayLevel": _INTEGERS,
    "deliverAt": (TimestampType(),),
}


MEANINGS = {
    "body": "content; the only required column, never null",
    "topic": "topic; null means option `topic`",
    "tags": "the tag",
    "keys": "the keys: an array of keys without blanks, or one text of keys separated by blanks; "
    "empty keys are left out",
    "properties": "further properties; other columns override entries of their names, and "
    "entries that brokers set are left out, see [copies](../sink.md#copies-of-messages)",
    "queueId": "queue within the topic; null lets the sink choose",
    "brokerName": "broker of the queue; required with queueId if several brokers of a cluster "
    "have the topic, null if there is only one",
    "messageGroup": "messages of a group keep their order, in one queue",
    "delayLevel": "delay level until delivery: 1 is 1 s, 2 is 5 s, up to 18, which is 2 h; null "
    "and 0 mean no delay",
    "deliverAt": "delivery time, up to 3 days from now; null and past times mean now; a time "
    "after the year 9999 is an error",
}
assert MEANINGS.keys() == ACCEPTED.keys()
_NAMES = {name.lower(): name for name in ACCEPTED}


def sink_column_table() -> str:
    """Returns the columns as a Markdown table, for the documentation."""
    rows = []
    for name, meaning in MEANINGS.items():
        types = " or ".join(f"`{kind.simpleString()}`" for kind in ACCEPTED[name])
        rows.append(f"| `{name}` | {types} | {meaning} |")
    return "\n".join(["| column | type | meaning |", "|---|---|---|", *rows])


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """The names of a query's columns, in its order and as `ACCEPTED` writes them; types fit."""

    names: tuple[str, ...]

    @classmethod
    def check(cls, schema: StructType) -> SinkColumns:
        """Returns the columns of a schema. Raises ColumnError.

        Names may differ in case, as in Spark.
        """
        names: dict[str, str] = {}
        for field in schema.fields:
            name = _NAMES.get(field.name.lower())
            if name is None:
                hint = column_hint(field.name, ACCEPTED, SINK_FOREIGN_COLUMNS)
                raise ColumnError(f"unknown column {field.name!r}; {hint}")
            if name in names:
                raise ColumnError(
                    f"columns {names[name]!r} and {field.name!r} have the same name in "
                    "Spark; drop one"
                )
            names[name] = field.name
            _check_type(name, field.dataType)
        if "body" not in names:
            raise ColumnError("column body is missing; name the message's content body")
        if "brokerName" in names and "queueId" not in names:
            raise ColumnError(
                "column brokerName needs column queueId, which is missing; add column "
                "queueId, or drop column brokerName"
            )
        return cls(tuple(names))


def _check_type(name: str, given: DataType) -> None:
    accepted = ACCEPTED[name]
    if not any(_same(given, kind) for kind in accepted):
        wanted = " or ".join(kind.simpleString() for kind in accepted)
        raise ColumnError(
            f"column {name!r} has type {given.simpleString()}, accepted: {wanted}; "
            f"{_way_out(name, given)}"
        )


def _way_out(name: str, given: DataType) -> str:
    is_nested = isinstance(given, StructType | ArrayType | MapType | VariantType)
    if is_nested and name == "body":
        return "write it as text, for instance to_json(body)"
    wanted = ACCEPTED[name][0 if is_nested else -1]
    return f"cast it: cast({name} as {wanted.simpleString()})"


def _same(given: DataType, accepted: DataType) -> bool:
    """True if types are equal but for collation and nullability, which is checked row by row."""
    if isinstance(given, StringType):
        return isinstance(accepted, StringType)
    return given.simpleString() == accepted.simpleString()

"""The sink's columns: what rows may have, checked before anything is sent. Holds no state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructType,
)

from pyspark_rocketpy.errors import ColumnError

_STRING, _BINARY = StringType(), BinaryType()
ACCEPTED: Mapping[str, tuple[DataType, ...]] = {
    "body": (_BINARY, _STRING),
    "topic": (_STRING,),
    "tags": (_STRING,),
    "keys": (ArrayType(_STRING), _STRING),
    "properties": (MapType(_STRING, _STRING),),
    "queueId": (IntegerType(),),
    "messageGroup": (_STRING,),
}


MEANINGS = {
    "body": "content; the only column that must be there, and never null",
    "topic": "topic; null stands for option `topic`",
    "tags": "the tag",
    "keys": "the keys, a list or one text with blanks between",
    "properties": "further properties; the other columns win over entries of their names",
    "queueId": "queue within the topic; null lets the sink choose",
    "messageGroup": "messages of a group keep their order, in one queue",
}
assert MEANINGS.keys() == ACCEPTED.keys()


def sink_column_table() -> str:
    """The columns as a Markdown table, for the documentation."""
    rows = []
    for name, meaning in MEANINGS.items():
        types = " or ".join(f"`{kind.simpleString()}`" for kind in ACCEPTED[name])
        rows.append(f"| `{name}` | {types} | {meaning} |")
    return "\n".join(["| column | type | meaning |", "|---|---|---|", *rows])


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """The columns that the rows of a query have; all of them are known and of a right type."""

    names: tuple[str, ...]

    @classmethod
    def check(cls, schema: StructType) -> SinkColumns:
        """Raises ColumnError."""
        for field in schema.fields:
            accepted = ACCEPTED.get(field.name)
            if accepted is None:
                raise ColumnError(
                    f"unknown column {field.name!r}; the columns are {', '.join(ACCEPTED)}"
                )
            if not any(_same(field.dataType, kind) for kind in accepted):
                wanted = " or ".join(kind.simpleString() for kind in accepted)
                raise ColumnError(
                    f"column {field.name!r} has type {field.dataType.simpleString()}, accepted is "
                    f"{wanted}; cast it"
                )
        names = tuple(field.name for field in schema.fields)
        if "body" not in names:
            raise ColumnError("column body is missing; name the message's content body")
        return cls(names)


def _same(given: DataType, accepted: DataType) -> bool:
    """Equal but for nullability, which is checked row by row."""
    return given.simpleString() == accepted.simpleString()

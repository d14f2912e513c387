"""Hypothesis strategies for commands."""

from __future__ import annotations

from typing import Any, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import strategies as st

from rocketpy_proto.remoting import (
    Language,
    MessageQueue,
    QueueTable,
    RemotingCommand,
    Serialization,
)

INT16 = st.integers(-(1 << 15), (1 << 15) - 1)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
# In a binary header an empty text is null.
FILLED_TEXTS = TEXTS.filter(bool)
# An object with this key is a reference of fastjson's.
KEYS = TEXTS.filter(lambda text: text != "$ref")

COMMANDS = st.builds(
    RemotingCommand,
    code=INT16,
    opaque=INT32,
    flag=st.integers(0, 3),
    language=st.sampled_from(Language),
    version=INT16,
    remark=st.none() | FILLED_TEXTS,
    ext_fields=st.dictionaries(FILLED_TEXTS, FILLED_TEXTS, max_size=4),
    body=st.binary(max_size=40),
    serialization=st.sampled_from(Serialization),
)


def values_of(kind: object) -> st.SearchStrategy[Any]:
    """Returns a strategy for all values of a header or body of this type."""
    return _values(msgspec.inspect.type_info(kind))


def _values(info: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    strategy: st.SearchStrategy[Any]
    match info:
        case msgspec.inspect.StructType(cls=cls, fields=fields):
            hints = get_type_hints(cls, include_extras=True)
            strategy = st.builds(
                cls, **{field.name: _field(field, hints[field.name]) for field in fields}
            )
        case msgspec.inspect.IntType(ge=low, le=high):
            strategy = st.integers(low, high)
        case msgspec.inspect.EnumType(cls=cls):
            strategy = st.sampled_from(list(cls))
        case msgspec.inspect.UnionType(types=types):
            strategy = st.one_of(*map(_values, types))
        case msgspec.inspect.VarTupleType(item_type=item):
            strategy = st.lists(_values(item), max_size=2).map(tuple)
        case msgspec.inspect.TupleType(item_types=types):
            strategy = st.tuples(*map(_values, types))
        case msgspec.inspect.DictType(key_type=key, value_type=value):
            keys = KEYS if isinstance(key, msgspec.inspect.StrType) else _values(key)
            strategy = st.dictionaries(keys, _values(value), max_size=2)
        case _:
            strategy = _PLAIN[type(info)]
    return strategy


def _field(field: msgspec.inspect.Field, hint: object) -> st.SearchStrategy[Any]:
    if get_origin(hint) is QueueTable:
        queues = st.builds(MessageQueue, TEXTS, INT32, TEXTS)
        return st.dictionaries(queues, values_of(get_args(hint)[0]), max_size=3).map(QueueTable)
    if get_origin(hint) is dict and get_origin(get_args(hint)[1]) is QueueTable:
        return st.dictionaries(KEYS, _field(field, get_args(hint)[1]), max_size=2)
    return _values(field.type)


_PLAIN: dict[type[msgspec.inspect.Type], st.SearchStrategy[Any]] = {
    msgspec.inspect.StrType: TEXTS | st.sampled_from(["null", "true", "1", '{"a":1}']),
    msgspec.inspect.BoolType: st.booleans(),
    msgspec.inspect.BytesType: st.binary(max_size=20),
    msgspec.inspect.FloatType: st.floats(allow_nan=False, allow_infinity=False),
    msgspec.inspect.NoneType: st.none(),
    # Kept as received.
    msgspec.inspect.CustomType: st.sampled_from([1, "a", True, [1, "b"], {"c": {"d": 2}}]),
}

"""Conversion between Arrow arrays and NumPy's and Python's values.

`pa.array`, `pa.scalar` and `to_numpy` import pandas for their first value, to check for pandas
objects. That costs 0.2 s of processor time in each new process, more than all other imports of a
task. These functions pass buffers instead. A reading task converts only through this module; a test
counts the task's imports. A process without pandas objects calls `leave_pandas_out` instead.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Number = TypeVar("Number", bound=np.number)
_process = SimpleNamespace(is_pandas_left_out=False)


class _NoPandas:
    """An import hook that reports pandas as not installed."""

    def find_spec(self, name: str, _path: object, _target: ModuleType | None = None) -> None:
        """Raises ModuleNotFoundError for pandas; leaves every other name to later hooks."""
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def leave_pandas_out() -> None:
    """Makes pyarrow take its first value without pandas; it never converts pandas objects then.

    Saves 0.2 s of processor time and 50 MB of memory. Code may still import pandas for itself.
    """
    hook = _NoPandas()
    sys.meta_path.insert(0, hook)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(hook)
    _process.is_pandas_left_out = True


def is_first_value_costly() -> bool:
    """True if the next call of `pa.array`, `pa.scalar` or `to_numpy` may import pandas."""
    return not _process.is_pandas_left_out and "pandas" not in sys.modules


def array_of(
    values: NDArray[Any], kind: pa.DataType | None = None, valid: NDArray[np.bool_] | None = None
) -> pa.Array:
    """Returns the numbers or truth values as an array; null where not `valid`.

    Contiguous numbers are shared, not copied. `kind` is another type of the same width.
    """
    own = values.dtype
    buffer = _bits(values) if own == np.bool_ else pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(
        kind or pa.from_numpy_dtype(own),
        len(values),
        [None if valid is None else _bits(valid), buffer],
    )


def binaries_of(values: Sequence[bytes | None]) -> pa.BinaryArray:
    """Returns the byte strings, less than 2 GiB in all; None is null."""
    filled = [value or b"" for value in values]
    offsets = np.zeros(len(filled) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, filled), np.int32, len(filled)), out=offsets[1:])
    valid = np.fromiter((value is not None for value in values), np.bool_, len(filled))
    buffers = [_bits(valid), pa.py_buffer(offsets), pa.py_buffer(b"".join(filled))]
    return pa.Array.from_buffers(pa.binary(), len(filled), buffers)


def strings_of(texts: Sequence[str | None]) -> pa.StringArray:
    """Returns the texts; None is null."""
    return binaries_of([None if text is None else text.encode() for text in texts]).cast(
        pa.string()
    )


def repeated(text: str, count: int) -> pa.StringArray:
    """Returns the text `count` times."""
    return pa.repeat(strings_of([text])[0], count)


def numbers_in(array: pa.Array, kind: type[Number]) -> NDArray[Number]:
    """Returns the numbers of an array of that kind without nulls, over its own memory."""
    assert array.type == pa.from_numpy_dtype(kind)
    buffer = array.buffers()[1]
    if buffer is None:
        return np.empty(0, kind)
    return np.frombuffer(buffer, kind)[array.offset : array.offset + len(array)]


def truths_in(array: pa.BooleanArray) -> NDArray[np.bool_]:
    """Returns the truth values of an array without nulls."""
    buffer = array.buffers()[1]
    if buffer is None:
        return np.empty(0, np.bool_)
    octets = np.frombuffer(buffer, np.uint8)
    bits = np.unpackbits(octets, count=array.offset + len(array), bitorder="little")
    return bits[array.offset :].view(np.bool_)


def _bits(truths: NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(truths, bitorder="little"))

"""Numbers in strings, and the order of numbers, as in Java.

Every number has a place on a scale of 64-bit integers. An integer's place is its value. A double's
place is its bits, changed so that they rise with the double: -0.0 is before 0.0, and NaN is last. A
string is a number only in the type of the number that it is compared with.
Source: docs/design/broker_behaviour.md section 3.3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketpy_broker.services.filters.expressions import (
    INT32_MAX,
    INT64_MAX,
    Number,
    NumberType,
)
from rocketpy_proto.record.block.masks import null_unless

Scale = NDArray[np.int64]
_MAX = {NumberType.INT32: INT32_MAX, NumberType.INT64: INT64_MAX}
# 19 digits always fit an unsigned 64-bit integer, which holds an integer's magnitude.
_INTEGER = r"^[+-]?0*[0-9]{1,19}$"
_DECIMAL = r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
_PLAIN_DOUBLE = rf"^-?{_DECIMAL}$"
_BLANKS = "".join(map(chr, range(33)))
_DOUBLE = rf"^[+-]?(NaN|Infinity|{_DECIMAL}[fFdD]?)$"
_MAGNITUDE_BITS = np.int64(INT64_MAX)


@dataclass(frozen=True, slots=True)
class Numbers:
    """Strings as numbers on the scale; the scale is meaningless where `is_number` is False."""

    scale: Scale
    is_number: NDArray[np.bool_]


def numbers_of(strings: pa.StringArray, kind: NumberType) -> Numbers:
    """Returns the strings as numbers of one type; null is no number."""
    return _doubles(strings) if kind is NumberType.DOUBLE else _integers(strings, _MAX[kind])


def scaled(number: Number, kind: NumberType) -> Scale:
    """Returns a number, widened to `kind`, on the scale of `kind`."""
    if kind is NumberType.DOUBLE:
        return _double_scale(np.array([number.value], np.float64))
    return np.array([number.value], np.int64)


def wider(left: Number, right: Number) -> NumberType:
    """Returns the wider type of two numbers."""
    return max(left.type, right.type, key=lambda kind: kind.value)


def compare(left: Number, right: Number) -> int:
    """Returns -1, 0 or 1 if `left` is less than, equal to, or greater than `right`."""
    kind = wider(left, right)
    mine, theirs = scaled(left, kind), scaled(right, kind)
    return int((mine > theirs)[0]) - int((mine < theirs)[0])


def _integers(strings: pa.StringArray, greatest: int) -> Numbers:
    """Returns strings as integers: an optional sign and digits, at most `greatest`."""
    formed = pc.match_substring_regex(strings, _INTEGER)
    digits = pc.utf8_ltrim(null_unless(formed, strings), characters="+-")
    sizes = pc.fill_null(pc.cast(digits, pa.uint64()), 0).to_numpy(zero_copy_only=False)
    negative = _mask(pc.starts_with(strings, "-"))
    fits = sizes <= np.where(negative, np.uint64(greatest + 1), np.uint64(greatest))
    values = sizes.view(np.int64)
    return Numbers(np.where(negative, -values, values), _mask(formed) & fits)


def _doubles(strings: pa.StringArray) -> Numbers:
    """Returns strings as doubles: the forms of Java's Double.valueOf except hexadecimal ones."""
    formed = pc.match_substring_regex(strings, _PLAIN_DOUBLE)
    if pc.all(formed).as_py() is False:
        strings = pc.utf8_trim(strings, characters=_BLANKS)
        formed = pc.match_substring_regex(strings, _DOUBLE)
        strings = pc.utf8_ltrim(null_unless(formed, strings), characters="+")
        strings = pc.utf8_rtrim(strings, characters="fFdD")
    values = pc.fill_null(pc.cast(strings, pa.float64()), 0.0).to_numpy(zero_copy_only=False)
    return Numbers(_double_scale(values), _mask(formed))


def _double_scale(values: NDArray[np.float64]) -> Scale:
    bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
    scale: Scale = np.where(bits < 0, bits ^ _MAGNITUDE_BITS, bits)
    return scale


def _mask(found: pa.BooleanArray) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
    return mask

"""Masks: masked values become null and all other values keep their content, also in a slice."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

from rocketpy_proto.record.block.masks import null_unless, null_where

TOP = Path(__file__).parents[3]
VALUES = ["longer than what a view holds", "u", None, "", "v"]
MASK = [True, False, None, False, True]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string()])
@pytest.mark.parametrize(("begin", "end"), [(0, 5), (1, 5), (3, 4), (2, 2)])
def test_k07_a_slice_keeps_its_own_values(kind: pa.DataType, begin: int, end: int) -> None:
    column = pa.array(VALUES, pa.string()).cast(kind)[begin:end]
    for whole in (pa.array(MASK)[begin:end], pa.array(MASK[begin:end], pa.bool_())):
        kept = [value.as_py() for value in column]
        marks = MASK[begin:end]
        where = [value if mark is False else None for value, mark in zip(kept, marks, strict=True)]
        unless = [value if mark is True else None for value, mark in zip(kept, marks, strict=True)]
        assert null_where(whole, column).to_pylist() == where
        assert null_unless(whole, column).to_pylist() == unless
        assert null_where(whole, column).type == kind


def test_numbers_are_left_out_alike() -> None:
    column = pa.array([1, 2, 3, None, 5])[1:]
    assert null_unless(pa.array([True, False, True, None]), column).to_pylist() == [
        2,
        None,
        None,
        None,
    ]


def test_nothing_else_makes_nulls_by_if_else() -> None:
    """Searches for `if_else` with None.

    Before pyarrow 24 it reads elsewhere in memory; see `block/masks.py`.
    """
    faults = []
    for room, path in product(("connector", "broker_emulator", "proto"), TOP.rglob("*.py")):
        if path.is_relative_to(TOP / room):
            text = path.read_text("utf-8")
            faults += [path for _ in re.finditer(r"if_else\([^\n]*\bNone\b", text)]
    assert faults == []

"""The CRC of bodies, with and without the library that makes it fast."""

from __future__ import annotations

import importlib.util
import sys
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy_proto.record import crc


@pytest.mark.parametrize("size", [0, 1, 100, 5000])
def test_without_isal_a_crc_is_the_same(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "isal", None)
    spec = importlib.util.spec_from_file_location("crc_without_isal", crc.__file__)
    assert spec is not None
    assert spec.loader is not None
    plain = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plain)
    assert plain._crc32 is zlib.crc32
    body = bytes(range(1, 251)) * 20
    body = body[:size]
    assert plain.body_crc(body) == crc.body_crc(body) == zlib.crc32(body) & 0x7FFFFFFF
    data, starts, ends = np.frombuffer(body + b"x", np.uint8), np.array([0]), np.array([size])
    assert plain.body_crcs(data, starts, ends).tolist() == [crc.body_crc(body)]


@pytest.mark.parametrize("mean_bytes", [20, 31, 32, 299, 300, 2400, 2401, 10_000])
@pytest.mark.parametrize("gap_bytes", [0, 7])
@pytest.mark.parametrize("is_even", [True, False])
@pytest.mark.parametrize(
    "count", [crc.FEW_RANGES, crc.FEW_RANGES + 1, crc.OWN_COPIES_MAX, crc.ROWS + 1]
)
def test_crcs_of_ranges_of_any_form(
    mean_bytes: int, gap_bytes: int, is_even: bool, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    lengths = np.full(count, mean_bytes)
    lengths[:2] += [0, 0] if is_even else [-19, 19]
    ends = np.cumsum(lengths + gap_bytes)
    starts = ends - lengths
    random = np.random.default_rng(mean_bytes)
    data = np.frombuffer(random.bytes(int(ends[-1]) + 3), np.uint8)
    expected = [
        zlib.crc32(data[begin:end].tobytes()) & 0x7FFFFFFF
        for begin, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    assert crc.body_crcs(data, starts, ends).tolist() == expected


@given(st.lists(st.binary(max_size=300), max_size=5))
def test_parts_have_the_crc_of_what_they_make_together(parts: list[bytes]) -> None:
    assert crc.crc_of_parts(*parts) == crc.body_crc(b"".join(parts))

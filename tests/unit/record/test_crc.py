"""The CRC of bodies, with and without the library that makes it fast."""

from __future__ import annotations

import importlib.util
import sys
import zlib

import numpy as np
import pytest

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

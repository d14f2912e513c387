"""A pause of the garbage collector during large imports, and only then."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from pyspark_rocketpy.imports import importing_much


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    was_enabled = gc.isenabled()
    yield
    (gc.enable if was_enabled else gc.disable)()


@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_collector_is_afterwards_as_it_was(is_enabled: bool) -> None:
    (gc.enable if is_enabled else gc.disable)()
    with importing_much():
        assert not gc.isenabled()
        with importing_much():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled() == is_enabled


def test_an_import_that_fails_leaves_it_on() -> None:
    gc.enable()
    with pytest.raises(ImportError), importing_much():
        raise ImportError
    assert gc.isenabled()

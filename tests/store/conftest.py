"""A store with small files for the tests of this folder."""

from __future__ import annotations

from tests.support.store.stores import clock, new_store, open_store, store

__all__ = ["clock", "new_store", "open_store", "store"]

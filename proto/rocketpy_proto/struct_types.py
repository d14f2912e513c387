"""Types that msgspec decodes to, inspected by one thread.

msgspec inspects a type when it first decodes to it. A second thread that decodes to the same type
meanwhile finds a half-made description. The process then ends with a segmentation fault.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TypeVar

import msgspec

T = TypeVar("T")
_prepared = set[object]()
_preparing = threading.Lock()


def prepared(kind: type[T]) -> type[T]:
    """Returns `kind`, which any thread may decode to from now on."""
    if kind not in _prepared:
        with _preparing, suppress(msgspec.ValidationError):
            msgspec.convert(None, kind)
        _prepared.add(kind)
    return kind

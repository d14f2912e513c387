"""Common parts of types that msgspec decodes to, and their inspection.

msgspec inspects a type when it first decodes to it. A second thread that decodes to the same type
meanwhile finds a half-made description. The process then ends with a segmentation fault.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Annotated, TypeVar

import msgspec

T = TypeVar("T")
Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_prepared = set[object]()
_preparing = threading.Lock()


class Body(msgspec.Struct, frozen=True, rename="camel"):
    """Base of the JSON bodies, and of the objects in them."""


def prepared(kind: type[T]) -> type[T]:
    """Returns `kind`, which any thread may decode to from now on."""
    if kind not in _prepared:
        with _preparing, suppress(msgspec.ValidationError):
            msgspec.convert(None, kind)
        _prepared.add(kind)
    return kind

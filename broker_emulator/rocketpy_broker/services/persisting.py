"""Saving several tables, so that one that cannot be saved does not hold up the others.

Holds no state. A crash between two of them leaves one table older than the other, which all
readers of these files expect.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

logger = logging.getLogger(__name__)


class Table(Protocol):
    """A table that lives in memory and is saved now and then."""

    def persist(self) -> None:
        """Save what has changed. Raises OSError; it is then tried again at the next call."""


def persist_all(tables: Iterable[Table]) -> None:
    """Persist each of them. Raises the first OSError, when all have been tried."""
    errors: list[OSError] = []
    for table in tables:
        try:
            table.persist()
        except OSError as error:
            logger.warning("%s could not be saved: %s", type(table).__name__, error)
            errors.append(error)
    if errors:
        raise errors[0]

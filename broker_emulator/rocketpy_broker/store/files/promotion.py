"""The file `rocketpy/promotion.json`: the promotion of this slave to master.

With the file a broker is a master, although its options say SLAVE. Each promotion of the store has
a higher epoch. `rocketpy store align` removes the file: the store is then a slave's again. A crash
leaves the file whole or missing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.store.files import durable


@dataclass(frozen=True, slots=True)
class Promotion:
    """A promotion: its role, the end of the slave's log then, and the time in ms since 1970."""

    role: str
    epoch: int
    log_end: int
    timestamp_ms: int


class PromotionFile:
    """The file of one store."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "rocketpy" / "promotion.json"

    def load(self) -> Promotion | None:
        """Returns the promotion; None without one. Raises StoreDirectoryError."""
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            role, *numbers = (content[name] for name in Promotion.__slots__)
            return Promotion(str(role), *map(int, numbers))
        except FileNotFoundError:
            return None
        except (KeyError, TypeError, ValueError) as error:
            raise StoreDirectoryError(
                self._path,
                f"cannot be read ({type(error).__name__}: {error})",
                "remove it if this store is a slave's; otherwise start it as a master",
            ) from error

    def save(self, promotion: Promotion) -> None:
        """Replaces the file. Raises OSError."""
        durable.replace_bytes(self._path, json.dumps(asdict(promotion)).encode())

    def remove(self) -> None:
        """Removes the file, if there is one. Raises OSError."""
        if self._path.exists():
            durable.remove_file(self._path)

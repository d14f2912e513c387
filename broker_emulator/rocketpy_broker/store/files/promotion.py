"""The file `rocketpy/promotion.json`: a store's last promotion to master.

If the file has a master's role, the broker is a master, even if its options say SLAVE. `rocketpy
store align` makes the store a slave's again. Each promotion has a higher epoch, which slaves keep:
a master of an earlier epoch is one that came back. A crash leaves the old or the new file.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.store.files import durable

# The role of a store that follows a promoted master.
SLAVE = "SLAVE"


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

    @property
    def epoch(self) -> int:
        """The epoch; 0 without a promotion. Raises StoreDirectoryError."""
        promotion = self.load()
        return 0 if promotion is None else promotion.epoch

    def save(self, promotion: Promotion) -> None:
        """Replaces the file. Raises OSError."""
        durable.replace_bytes(self._path, json.dumps(asdict(promotion)).encode())

    def follow(self, epoch: int, log_end: int, timestamp_ms: int) -> None:
        """Makes the store a slave's; its master has this epoch, and one of RocketMQ has 0.

        The highest known epoch stays. Raises OSError.
        """
        known = self.load()
        epoch = max(epoch, 0 if known is None else known.epoch)
        is_known = known is not None and (known.role, known.epoch) == (SLAVE, epoch)
        if epoch and not is_known:
            self.save(Promotion(SLAVE, epoch, log_end, timestamp_ms))

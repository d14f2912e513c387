"""Changes of a consumer group's configuration by a request.

Numbers are checked here; RocketMQ does not check them: docs/design/broker_behaviour.md section 9.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from rocketpy_broker.errors import BrokerError, ParameterIllegalError
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.model.configs import QUEUE_NUMS_MAX, SubscriptionGroupConfig

INT_MAX, LONG_MAX = (1 << 31) - 1, (1 << 63) - 1
# The lowest and the highest value of each field.
BOUNDS: Mapping[str, tuple[int, int]] = {
    "retry_queue_nums": (0, QUEUE_NUMS_MAX),
    "retry_max_times": (0, INT_MAX),
    "broker_id": (0, LONG_MAX),
    "which_broker_when_consume_slowly": (0, LONG_MAX),
    "group_sys_flag": (0, INT_MAX),
    "consume_timeout_minute": (1, INT_MAX),
}


class GroupExistsError(BrokerError):
    """A request to create a group that exists already."""

    code = ResponseCode.ILLEGAL_OPERATION

    def __init__(self, group: str) -> None:
        super().__init__(f"consumer group {group!r} exists already; change it, or choose another")


@dataclass(frozen=True, slots=True)
class GroupChange:
    """Fields of SubscriptionGroupConfig by name; other fields keep their old or default values."""

    group: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Raises ParameterIllegalError for a number outside `BOUNDS`."""
        for name, (least, most) in BOUNDS.items():
            value = self.fields.get(name)
            if value is not None and not least <= value <= most:
                raise ParameterIllegalError(name, value, f"{least} to {most}")

    def of(self, old: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        """Returns the changed configuration."""
        return structs.replace(old, **self.fields)

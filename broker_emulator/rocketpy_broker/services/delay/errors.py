"""Errors of messages with a delivery time."""

from __future__ import annotations

from rocketpy_broker.errors import TimerRefusedError


class TimerNotEnabledError(TimerRefusedError):
    """Messages with a delivery time are disabled."""

    def __init__(self) -> None:
        super().__init__("accurate timer message is not enabled, timerWheelEnable is false")


class TimerFullError(TimerRefusedError):
    """The limit of messages that wait for a delivery time is reached."""

    def __init__(self, waiting_count: int, sent_count: int, count_max: int) -> None:
        super().__init__(
            f"timer message is under flow control, {waiting_count} messages wait for their "
            f"delivery time and {sent_count} more were sent, limit {count_max}. Send again when "
            "some are delivered, or restart the broker with a larger --timer-pending-max"
        )
        self.waiting_count = waiting_count
        self.count_max = count_max

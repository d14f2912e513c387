"""Delay before the next delivery of a message, by the retry policy of its consumer group.

Source: GroupRetryPolicy, CustomizedRetryPolicy, ExponentialRetryPolicy, docs/design/storage.md
section 11.4.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketpy_broker.services.groups.config import SubscriptionGroupConfig
from rocketpy_broker.store.delay_levels import DelayLevels

EXPONENTIAL = "EXPONENTIAL"
INITIAL_MS, MAX_MS, MULTIPLIER = 5_000, 7_200_000, 2
# RocketMQ's first redelivery takes the third delay.
SKIPPED = 2
EXPONENT_MAX = 32


def retry_delay_ms(group: SubscriptionGroupConfig, attempt: int) -> int:
    """Returns the delay after the failed delivery number `attempt`, from 1 on.

    Values that are no numbers, such as an operator's typing errors, count as the defaults.
    """
    policy, failures = group.group_retry_policy, max(attempt - 1, 0)
    if policy.get("type") != EXPONENTIAL:
        delays = _customized(policy)
        return min(delays[min(failures + SKIPPED, len(delays) - 1)], MAX_MS)
    given = policy.get("exponentialRetryPolicy")
    numbers: Mapping[str, object] = given if isinstance(given, Mapping) else {}
    initial = _number(numbers.get("initial"), INITIAL_MS)
    factor = _number(numbers.get("multiplier"), MULTIPLIER)
    longest = min(_number(numbers.get("max"), MAX_MS), MAX_MS)
    return int(min(initial * factor ** min(failures, EXPONENT_MAX), longest))


def _customized(policy: Mapping[str, object]) -> list[int]:
    given = policy.get("customizedRetryPolicy")
    delays = given.get("next") if isinstance(given, Mapping) else None
    if isinstance(delays, list) and delays:
        return [_number(each, MAX_MS) for each in delays]
    return list(DelayLevels.parse().delays_ms)


def _number(value: object, usual: int) -> int:
    is_number = isinstance(value, int) and 0 < value <= MAX_MS
    return value if is_number and isinstance(value, int) else usual

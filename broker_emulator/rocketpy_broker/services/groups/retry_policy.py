"""Delays of redeliveries by a group's retry policy.

Source: GroupRetryPolicy, CustomizedRetryPolicy, ExponentialRetryPolicy, docs/design/storage.md
section 11.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rocketpy_broker.store.delay_levels import DelayLevels
from rocketpy_proto.model.configs import SubscriptionGroupConfig

EXPONENTIAL = "EXPONENTIAL"
INITIAL_MS, MAX_MS, MULTIPLIER = 5_000, 7_200_000, 2
# RocketMQ's first redelivery takes the third delay.
SKIPPED = 2
EXPONENT_MAX = 32


@dataclass(frozen=True, slots=True)
class Exponential:
    """Delays that grow by a factor, in ms."""

    initial_ms: int
    multiplier: int
    max_ms: int


def retry_policy(group: SubscriptionGroupConfig) -> Exponential | list[int]:
    """Returns the delays of a group's redeliveries in ms: by a rule, or one after the other.

    A value that is no integer from 1 to MAX_MS, such as a typing error, counts as the default.
    """
    policy = group.group_retry_policy
    if policy.get("type") != EXPONENTIAL:
        return _customized(policy)
    given = policy.get("exponentialRetryPolicy")
    numbers: Mapping[str, object] = given if isinstance(given, Mapping) else {}
    return Exponential(
        _number(numbers.get("initial"), INITIAL_MS),
        _number(numbers.get("multiplier"), MULTIPLIER),
        _number(numbers.get("max"), MAX_MS),
    )


def retry_delay_ms(group: SubscriptionGroupConfig, attempt: int) -> int:
    """Returns the delay after the failed delivery number `attempt`, from 1 on."""
    policy, failures = retry_policy(group), max(attempt - 1, 0)
    if isinstance(policy, Exponential):
        factor: int = policy.multiplier ** min(failures, EXPONENT_MAX)
        return min(policy.initial_ms * factor, policy.max_ms)
    return policy[min(failures + SKIPPED, len(policy) - 1)]


def _customized(policy: Mapping[str, object]) -> list[int]:
    given = policy.get("customizedRetryPolicy")
    delays = given.get("next") if isinstance(given, Mapping) else None
    if isinstance(delays, list) and delays:
        return [_number(each, MAX_MS) for each in delays]
    return list(DelayLevels.parse().delays_ms)


def _number(value: object, usual: int) -> int:
    is_number = isinstance(value, int) and 0 < value <= MAX_MS
    return value if is_number and isinstance(value, int) else usual

"""Settings that the broker returns to a client.

Source: GrpcClientSettingsManager, docs/design/grpc_v2_semantics.md section 4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from google.protobuf.duration_pb2 import Duration

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.server.apache_v2.status import StatusError
from rocketpy_broker.services.groups.retry_policy import (
    INITIAL_MS,
    MAX_MS,
    MULTIPLIER,
    Exponential,
    retry_policy,
)
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.model.codes import Language
from rocketpy_proto.model.configs import SubscriptionGroupConfig

PRODUCERS = frozenset({v2.PRODUCER})
CONSUMERS = frozenset({v2.PUSH_CONSUMER, v2.SIMPLE_CONSUMER, v2.PULL_CONSUMER})
PRODUCER_ATTEMPTS_MAX = 3
RECEIVE_BATCH_SIZE = 32
LONG_POLLING_SECONDS = 20
PRODUCER_BACKOFF = Exponential(10, 2, 1_000)
_PROPERTIES_MAX, _PROPERTIES_CHARACTERS_MAX = 32, 4_096
_PROPERTY_KEY = re.compile(r"(?!rocketmq\.)[a-zA-Z][a-zA-Z0-9_.-]{0,63}")
_PROPERTY_VALUE_CHARACTERS_MAX = 256
# The SDK for Node.js names itself HTTP; it understands no list of delays.
_WITHOUT_DELAY_LISTS = frozenset({Language.HTTP, Language.NODE_JS})


def check_settings(settings: v2.Settings) -> None:
    """Raises StatusError for settings of an unknown client type or with illegal properties."""
    branch = settings.WhichOneof("pub_sub")
    if branch is None:
        raise StatusError(
            v2.BAD_REQUEST, "the settings have neither publishing nor subscription; send one"
        )
    accepted = PRODUCERS if branch == "publishing" else CONSUMERS
    if settings.client_type not in accepted:
        raise unrecognized(settings.client_type)
    _check_properties(settings.client_properties)


def unrecognized(client_type: v2.ClientType) -> StatusError:
    """Returns the error for a client of a type that is not served."""
    known = v2.ClientType.keys()[client_type] if client_type in v2.ClientType.values() else ""
    return StatusError(
        v2.UNRECOGNIZED_CLIENT_TYPE,
        f"clients of type {known or client_type} are not served; this broker serves producers, and "
        "push, simple and pull consumers without lite topics",
    )


def _check_properties(properties: Mapping[str, str]) -> None:
    is_legal = len(properties) <= _PROPERTIES_MAX and all(
        _PROPERTY_KEY.fullmatch(key) and len(value) <= _PROPERTY_VALUE_CHARACTERS_MAX
        for key, value in properties.items()
    )
    size = sum(len(key) + len(value) for key, value in properties.items())
    if not is_legal or size > _PROPERTIES_CHARACTERS_MAX:
        raise StatusError(
            v2.INVALID_CLIENT_PROPERTIES,
            f"client_properties are illegal: {len(properties)} with {size} characters in all. Send "
            f"at most {_PROPERTIES_MAX}, with {_PROPERTIES_CHARACTERS_MAX} characters in all. Keys "
            "have 1 to 64 letters, digits, `_`, `.` or `-`, and begin with a letter, but not with "
            f"`rocketmq.`. Values have at most {_PROPERTY_VALUE_CHARACTERS_MAX} characters",
        )


def completed(
    settings: v2.Settings,
    config: BrokerConfig,
    group: SubscriptionGroupConfig | None,
    language: Language,
) -> v2.Settings:
    """Returns a client's settings with the values of the broker; `group` is for consumers."""
    answer = v2.Settings()
    answer.CopyFrom(settings)
    answer.metric.on = False
    answer.metric.ClearField("endpoints")
    if answer.HasField("publishing"):
        answer.publishing.max_body_size = config.limits.body_bytes_max
        answer.publishing.validate_message_type = config.enable_topic_message_type_check
        answer.backoff_policy.CopyFrom(_exponential(PRODUCER_ATTEMPTS_MAX, PRODUCER_BACKOFF))
        return answer
    group = group or SubscriptionGroupConfig("")
    subscription = answer.subscription
    subscription.fifo = group.consume_message_orderly
    subscription.receive_batch_size = RECEIVE_BATCH_SIZE
    subscription.long_polling_timeout.FromSeconds(LONG_POLLING_SECONDS)
    answer.backoff_policy.CopyFrom(consumer_backoff(group, language))
    return answer


def consumer_backoff(group: SubscriptionGroupConfig, language: Language) -> v2.RetryPolicy:
    """Returns the attempts of a consumer group and the delays between them."""
    attempts = max(group.retry_max_times, 0) + 1
    policy = retry_policy(group)
    if language in _WITHOUT_DELAY_LISTS and not isinstance(policy, Exponential):
        policy = Exponential(INITIAL_MS, MULTIPLIER, MAX_MS)
    if isinstance(policy, Exponential):
        return _exponential(attempts, policy)
    # Some SDKs read whole seconds.
    delays = [Duration(seconds=max(ms // 1000, 1)) for ms in policy]
    return v2.RetryPolicy(
        max_attempts=attempts, customized_backoff=v2.CustomizedBackoff(next=delays)
    )


def _exponential(attempts: int, policy: Exponential) -> v2.RetryPolicy:
    backoff = v2.ExponentialBackoff(multiplier=policy.multiplier)
    backoff.initial.FromMilliseconds(policy.initial_ms)
    backoff.max.FromMilliseconds(policy.max_ms)
    return v2.RetryPolicy(max_attempts=attempts, exponential_backoff=backoff)

"""The broker's configuration under RocketMQ's names.

A property with a `change` can be changed while the broker runs. Source: BrokerConfig and
MessageStoreConfig of RocketMQ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.store.cleaner import HOUR_MS
from rocketpy_proto.model.configs import READ_WRITE, Perm

INT_MAX = (1 << 31) - 1
RATIO_PERCENT_MIN, RATIO_PERCENT_MAX = 10, 95
T = TypeVar("T")
# Returns the value of a text. Raises ValueError with the accepted values.
Parse = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class BrokerProperty:
    """A property: its value in a configuration, and the change of a configuration to a value."""

    read: Callable[[BrokerConfig], object]
    change: Callable[[BrokerConfig, Any], BrokerConfig] | None = None
    parse: Parse = str

    def text(self, config: BrokerConfig) -> str:
        """Returns the value as RocketMQ writes it."""
        value = self.read(config)
        return str(value).lower() if isinstance(value, bool) else str(value)


def _of(name: str) -> BrokerProperty:
    """Returns a property that is a field of the configuration; a dot leads into a part of it."""

    def read(config: BrokerConfig) -> object:
        value: Any = config
        for part in name.split("."):
            value = getattr(value, part)
        return value

    return BrokerProperty(read)


def _changeable(name: str, parse: Parse) -> BrokerProperty:
    """Returns a property like `_of`, which can be changed."""
    part, _, field = name.rpartition(".")

    def change(config: BrokerConfig, value: Any) -> BrokerConfig:
        if not part:
            return replace(config, **{field: value})
        return replace(config, **{part: replace(getattr(config, part), **{field: value})})

    return replace(_of(name), change=change, parse=parse)


def _bool(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError("true or false")
    return text.lower() == "true"


def _int(least: int, most: int) -> Parse:
    def parse(text: str) -> int:
        digits = text.removeprefix("-")
        is_number = digits.isascii() and digits.isdecimal() and len(digits) <= len(str(INT_MAX))
        if not is_number or not least <= int(text) <= most:
            raise ValueError(f"{least} to {most}")
        return int(text)

    return parse


def _scaled(base: BrokerProperty, unit: int) -> BrokerProperty:
    """Returns `base` in a larger unit, which is `unit` times the unit of the configuration."""
    change = base.change
    return BrokerProperty(
        lambda config: int(base.read(config)) // unit,  # type: ignore[call-overload]
        None if change is None else lambda config, value: change(config, value * unit),
        base.parse,
    )


def _hours(text: str) -> frozenset[int]:
    parse = _int(0, 23)
    try:
        return frozenset(parse(hour.strip()) for hour in text.split(";"))
    except ValueError as error:
        raise ValueError("hours from 0 to 23, with ';' in between") from error


def _delete_when() -> BrokerProperty:
    base = _changeable("clean_policy.delete_when_hours", _hours)
    return replace(
        base,
        read=lambda config: ";".join(
            f"{hour:02}" for hour in sorted(config.clean_policy.delete_when_hours)
        ),
    )


def _used_space() -> BrokerProperty:
    def parse(text: str) -> float:
        return float(_int(RATIO_PERCENT_MIN, RATIO_PERCENT_MAX)(text)) / 100

    base = _changeable("clean_policy.used_ratio_max", parse)
    return replace(base, read=lambda config: round(config.clean_policy.used_ratio_max * 100))


_LEAST_PAGES = BrokerProperty(lambda config: config.flush_times.least_bytes // 4096)

PROPERTIES: Mapping[str, BrokerProperty] = {
    "brokerClusterName": _of("cluster_name"),
    "brokerName": _of("broker_name"),
    "brokerId": _of("replication.broker_id"),
    "brokerRole": BrokerProperty(lambda config: config.replication.role.value),
    "haListenPort": BrokerProperty(lambda config: config.replication.port or 0),
    "inSyncReplicas": BrokerProperty(lambda config: config.replication.in_sync_replicas or 1),
    "slaveTimeout": _of("replication.slave_timeout_ms"),
    "haSlaveFallbehindMax": _of("replication.fall_behind_bytes_max"),
    "haTransferBatchSize": _of("replication.batch_bytes"),
    "brokerIP1": _of("host"),
    "listenPort": BrokerProperty(lambda config: config.remoting_port or 0),
    "brokerPermission": _changeable("broker_permission", _int(0, int(READ_WRITE | Perm.INHERIT))),
    "storePathRootDir": _of("data"),
    "storePathCommitLog": BrokerProperty(lambda config: config.data / "commitlog"),
    "mappedFileSizeCommitLog": _of("commit_log_segment_bytes"),
    "mappedFileSizeConsumeQueue": _of("consume_queue_file_bytes"),
    "flushDiskType": BrokerProperty(lambda config: config.flush_disk_type.value),
    "flushIntervalCommitLog": _of("flush_times.flush_interval_ms"),
    "flushCommitLogLeastPages": _LEAST_PAGES,
    "flushCommitLogThoroughInterval": _of("flush_times.thorough_interval_ms"),
    "syncFlushTimeout": _of("flush_times.sync_flush_timeout_ms"),
    "flushConsumerOffsetInterval": _of("persist_interval_ms"),
    "fileReservedTime": _scaled(
        _changeable("clean_policy.reserved_ms", _int(0, INT_MAX // HOUR_MS * 1000)), HOUR_MS
    ),
    "deleteWhen": _delete_when(),
    "diskMaxUsedSpaceRatio": _used_space(),
    "cleanFileForciblyEnable": _changeable("clean_policy.clean_file_forcibly_enable", _bool),
    "cleanResourceInterval": _of("clean_interval_ms"),
    "maxMessageSize": _of("limits.body_bytes_max"),
    "maxTransferCountOnMessageInMemory": _of("limits.transfer.count_on_message_in_memory"),
    "maxTransferBytesOnMessageInMemory": _of("limits.transfer.bytes_on_message_in_memory"),
    "maxTransferCountOnMessageInDisk": _of("limits.transfer.count_on_message_in_disk"),
    "maxTransferBytesOnMessageInDisk": _of("limits.transfer.bytes_on_message_in_disk"),
    "accessMessageInMemoryMaxRatio": _of("memory_ratio_percent"),
    "slaveReadEnable": _of("slave_read_enable"),
    "longPollingEnable": _of("long_polling_enable"),
    "shortPollingTimeMills": _of("short_polling_time_ms"),
    "autoCreateTopicEnable": _changeable("system_topics.auto_create_topic_enable", _bool),
    "autoCreateSubscriptionGroup": _changeable("auto_create_subscription_group", _bool),
    "defaultTopicQueueNums": _of("system_topics.default_topic_queue_nums"),
    "reviveQueueNum": _of("system_topics.revive_queue_nums"),
    "traceTopicEnable": _of("system_topics.trace_topic_enable"),
    "timerWheelEnable": _of("system_topics.timer_wheel_enable"),
    "timerMaxDelaySec": _scaled(_of("timer_delay_ms_max"), 1000),
    "recallMessageEnable": _of("recall_message_enable"),
    "messageDelayLevel": BrokerProperty(lambda config: config.delay_levels),
    "startAcceptSendRequestTimeStamp": _of("start_accept_send_request_timestamp_ms"),
    "rejectTransactionMessage": _changeable("reject_transaction_message", _bool),
    "transactionTimeOut": _changeable("transactions.timeout_ms", _int(1, INT_MAX)),
    "transactionCheckMax": _changeable("transactions.check_max", _int(0, INT_MAX)),
    "transactionCheckInterval": _changeable("transactions.check_interval_ms", _int(1, INT_MAX)),
    "enableMixedMessageType": _changeable("enable_mixed_message_type", _bool),
}

"""Parsed options of source and sink, as frozen values.

Names follow Spark's Kafka source for common concepts, and RocketMQ for its own. Errors are raised
before any job starts, and name the option, the value, and the accepted values.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark_rocketpy.errors import OptionError
from pyspark_rocketpy.options.choices import (
    Allocation,
    DeliveryGuarantee,
    FilterType,
    TimestampStrategy,
)
from pyspark_rocketpy.options.clusters import ClusterOptions, cluster_of
from pyspark_rocketpy.options.foreign_names import SINK_FOREIGN_NAMES, SOURCE_FOREIGN_NAMES
from pyspark_rocketpy.options.shared import CONSUMER_GROUP, retry_topic
from pyspark_rocketpy.options.sink_specs import CONTROL_TOPIC, SINK_OPTIONS
from pyspark_rocketpy.options.source_specs import (
    ENDING_TIMESTAMP,
    SOURCE_OPTIONS,
    STARTING_TIMESTAMP,
)
from pyspark_rocketpy.options.specs import OptionTable, given_options, parse, tags
from pyspark_rocketpy.options.tls import tls_of
from pyspark_rocketpy.times import TIME_FORMS, time_ms
from rocketpy_proto.tls import TlsConfig

_SOURCE = OptionTable(
    SOURCE_OPTIONS, SOURCE_FOREIGN_NAMES, SINK_OPTIONS, "the sink; set it on write or writeStream"
)
_SINK = OptionTable(
    SINK_OPTIONS, SINK_FOREIGN_NAMES, SOURCE_OPTIONS, "the source; set it on read or readStream"
)

_TIMES = ((STARTING_TIMESTAMP, "starting_timestamp"), (ENDING_TIMESTAMP, "ending_timestamp"))
# Options that endpoints refuse, besides the connection options.
CLUSTER_ONLY = ("pullsInFlightMax", "brokerUnavailableTimeout")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Checked options of the source; times in ms, sizes in bytes.

    Either `endpoints` or `cluster` is set. `access_key` is the user at a broker of `endpoints`.
    """

    endpoints: tuple[str, ...]
    cluster: ClusterOptions | None
    access_key: str | None
    secret_key: str | None = field(repr=False)
    tls: TlsConfig | None
    topics: tuple[str, ...]
    topic_pattern: str | None
    consumer_group: str
    # Of option includeRetryTopic: the topic of the group's retries.
    retry_topic: str | None
    starting_offsets: str | None
    ending_offsets: str
    starting_timestamp: int | None
    starting_offsets_by_timestamp: str | None
    starting_offsets_by_timestamp_strategy: TimestampStrategy
    ending_timestamp: int | None
    ending_offsets_by_timestamp: str | None
    # None: the zone of this machine.
    time_zone: dt.tzinfo | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    max_bytes_per_trigger: int | None
    min_partitions: int | None
    max_records_per_partition: int | None
    allocation: Allocation | None
    allocation_config: str | None
    machine_rooms: tuple[str, ...] | None
    # Of option filter, by filterType: tags or an SQL92 expression.
    tags: tuple[str, ...] | None
    expression: str | None
    keys: tuple[str, ...] | None
    push_down_filters: bool
    fail_on_data_loss: bool
    commit_offsets: bool
    columns: tuple[str, ...] | None
    fetch_bytes_max: int
    prefetch_bytes_max: int
    poll_timeout_ms: int
    connect_timeout_ms: int
    retry_times_max: int
    retry_backoff_ms: int
    pull_timeout_ms: int
    pulls_in_flight_max: int
    broker_unavailable_timeout_ms: int

    @classmethod
    def parse(cls, options: Mapping[str, str], *, is_shared: bool = False) -> SourceOptions:
        """Returns the checked options. Raises OptionError.

        With `is_shared`, as for a view, the sink's options are ignored.
        """
        values = parse(options, _SOURCE, is_shared=is_shared)
        tls = tls_of(values, given_options(options))
        values["cluster"] = cluster_of(values, given_options(options), CLUSTER_ONLY, tls)
        topic, topics = values.pop("topic"), values.pop("topics")
        chosen = [kind for kind in (topic, topics, values["topic_pattern"]) if kind is not None]
        if len(chosen) != 1:
            raise OptionError("set exactly one of the options topic, topics and topicPattern")
        values["retry_topic"] = retry_topic(
            str(values["consumer_group"]),
            is_read=bool(values.pop("include_retry_topic")),
            is_given=CONSUMER_GROUP.name.lower() in given_options(options),
        )
        for name, attribute in _TIMES:
            values[attribute] = _time(name, values[attribute], values["time_zone"])
        values |= _filter(values.pop("filter"), values.pop("filter_type"))
        read = topics or (() if topic is None else (topic,))
        return cls(topics=read, tls=tls, **values)  # type: ignore[arg-type]


def _time(option: str, value: object, zone: object) -> int | None:
    """Returns milliseconds since 1970. Raises OptionError."""
    assert zone is None or isinstance(zone, dt.tzinfo)
    try:
        return None if value is None else time_ms(value, zone)
    except ValueError as error:
        raise OptionError(f"option {option} is {value!r}; accepted: {TIME_FORMS}") from error


def _filter(value: object, kind: object) -> dict[str, object]:
    """Returns the filter's fields of SourceOptions. Raises OptionError."""
    if kind is FilterType.SQL92:
        if value is None:
            raise OptionError("option filterType is SQL92, but filter is not set; set it as well")
        return {"tags": None, "expression": value}
    try:
        return {"tags": None if value is None else tags(str(value)), "expression": None}
    except ValueError as error:
        raise OptionError(
            f"option filter is {value!r}; accepted: TagA || TagB, or *; for a condition on the "
            "messages' properties set filterType to SQL92"
        ) from error


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Checked options of the sink; times in ms, sizes in bytes.

    Either `endpoints` or `cluster` is set. `access_key` is the user at a broker of `endpoints`.
    """

    endpoints: tuple[str, ...]
    cluster: ClusterOptions | None
    access_key: str | None
    secret_key: str | None = field(repr=False)
    tls: TlsConfig | None
    topic: str | None
    delivery: DeliveryGuarantee
    # Set for effectively-once alone.
    control_topic: str | None
    txn_app_id: str | None
    txn_version: int | None
    batch_bytes_max: int
    send_timeout_ms: int
    commit_timeout_ms: int
    fail_on_data_loss: bool
    connect_timeout_ms: int
    retry_times_max: int
    retry_backoff_ms: int

    @classmethod
    def parse(cls, options: Mapping[str, str], *, is_shared: bool = False) -> SinkOptions:
        """Returns the checked options. Raises OptionError.

        With `is_shared`, as for a view, the source's options are ignored.
        """
        values = parse(options, _SINK, is_shared=is_shared)
        tls = tls_of(values, given_options(options))
        values["cluster"] = cluster_of(values, given_options(options), (), tls)
        if values["delivery"] is None:
            is_cluster = values["cluster"] is not None
            values["delivery"] = (
                DeliveryGuarantee.AT_LEAST_ONCE if is_cluster else DeliveryGuarantee.EXACTLY_ONCE
            )
        if values["delivery"] is not DeliveryGuarantee.EFFECTIVELY_ONCE:
            if CONTROL_TOPIC.lower() in given_options(options):
                raise OptionError(
                    "option controlTopic is for delivery effectively-once; leave it out, or set "
                    "delivery"
                )
            values["control_topic"] = None
        parsed = cls(tls=tls, **values)  # type: ignore[arg-type]
        parsed._check()
        return parsed

    def _check(self) -> None:
        if self.cluster is not None and self.delivery is DeliveryGuarantee.EXACTLY_ONCE:
            raise OptionError(
                "option delivery is exactly-once, which a cluster of Apache RocketMQ cannot do: "
                "it cannot make messages of several queues visible together, and only once. "
                "Leave it out: with at-least-once a row that is stored twice has the same "
                "UNIQ_KEY both times. With effectively-once the task looks for a row before it "
                "sends the row again"
            )
        if self.cluster is None and self.delivery is DeliveryGuarantee.EFFECTIVELY_ONCE:
            raise OptionError(
                "option delivery is effectively-once, which is only for clusters of Apache "
                "RocketMQ (option nameServer); with endpoints set it to exactly-once, the stronger "
                "guarantee"
            )
        if self.cluster is not None and self.txn_app_id is not None:
            raise OptionError(
                "option txnAppId needs delivery exactly-once, which a cluster of Apache RocketMQ "
                "cannot do; leave it out with nameServer"
            )
        if (self.txn_app_id is None) != (self.txn_version is None):
            raise OptionError("set both options txnAppId and txnVersion, or none of them")
        if self.txn_app_id is not None and self.delivery is not DeliveryGuarantee.EXACTLY_ONCE:
            raise OptionError(
                "option txnAppId is set, but delivery is at-least-once; leave out delivery, or "
                "txnAppId and txnVersion"
            )


_BY_BROKER = 'JSON names brokers: `{"orders":{"broker-a":{"0":12}}}`'
_NO_MEANING = "no meaning: nothing is committed"
# Differences on a cluster, by option.
CLUSTER_DIFFERENCES = {
    "endpoints": "refused; use nameServer",
    "startingOffsets": _BY_BROKER,
    "endingOffsets": _BY_BROKER,
    "startingOffsetsByTimestamp": _BY_BROKER,
    "endingOffsetsByTimestamp": _BY_BROKER,
    "maxBytesPerTrigger": "estimated from samples",
    "allocationConfig": "names queues as `orders:broker-a:0`",
    "machineRooms": "each broker with queues of the query must be in one of the rooms",
    "filter": "SQL92 needs `enablePropertyFilter=true` at the brokers",
    "keys": "no index is used: tasks read all messages and filter",
    "failOnDataLoss": "in the source also: whether the query fails if a broker is away too long",
    "fetchBytesMax": "of one Arrow batch; RocketMQ's broker answers with 32 messages or 256 KiB at "
    "a time, rocketpy's with 512 KiB",
    "delivery": "at-least-once, the default, or effectively-once; exactly-once is refused",
    "txnAppId": "refused: it needs exactly-once",
    "txnVersion": "refused: it needs exactly-once",
    "batchBytesMax": "at most 4 MiB",
    "controlTopic": "only on clusters; exactly one broker must have this topic",
    "commitTimeout": _NO_MEANING,
}


def cluster_table() -> str:
    """Returns each option's behaviour on a cluster, as a Markdown table for the documentation."""
    names = dict.fromkeys(spec.name for spec in (*SOURCE_OPTIONS, *SINK_OPTIONS))
    rows = [f"| `{name}` | {CLUSTER_DIFFERENCES.get(name, 'yes')} |" for name in names]
    return "\n".join(["| option | on a cluster |", "|---|---|", *rows])

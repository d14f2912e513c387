"""Other connectors' names of options and columns, with this connector's names.

Names come from Spark's Kafka source, Kafka itself, RocketMQ's clients and rocketmq-spark.
Former names are accepted until version 1.0.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from pyspark_rocketpy.errors import OptionError

logger = logging.getLogger(__name__)

_ENDPOINTS = "use endpoints, with host:port of a broker"
_NAME_SERVER = "use nameServer for a cluster, or endpoints with host:port of a broker of rocketpy"
_GROUP = "use consumerGroup"
_TOPIC = "use topic, or topics for several"
_FILTER = "use filter, as in TagA || TagB"
_SQL92 = "use filter with filterType SQL92"
_FETCH = "use fetchBytesMax, in bytes"

# Lower-case names, since Spark ignores case.
SOURCE_FOREIGN_NAMES: Mapping[str, str] = {
    "subscribe": _TOPIC,
    "subscribepattern": "use topicPattern",
    "assign": f"{_TOPIC}; all queues are read",
    "kafka.bootstrap.servers": _ENDPOINTS,
    "bootstrap.servers": _ENDPOINTS,
    "servers": _ENDPOINTS,
    "broker": _ENDPOINTS,
    "brokers": _ENDPOINTS,
    "nameserveraddress": _NAME_SERVER,
    "namesrvaddr": _NAME_SERVER,
    "name.srv.addr": _NAME_SERVER,
    "group.id": _GROUP,
    "kafka.group.id": _GROUP,
    "groupid": _GROUP,
    "groupidprefix": _GROUP,
    "group": _GROUP,
    "includeheaders": "leave it out; column properties always has them",
    "kafkaconsumer.polltimeoutms": "use pullTimeout, such as 30s",
    "fetchoffset.numretries": "use retryTimesMax",
    "fetchoffset.retryintervalms": "use retryBackoff, such as 100ms",
    "consumeroffset": "use startingOffsets",
    "consumefromwhere": "use startingOffsets",
    "auto.offset.reset": "use startingOffsets",
    "tag": _FILTER,
    "tags": _FILTER,
    "subexpression": _FILTER,
    "selector": _SQL92,
    "messageselector": _SQL92,
    "sql": _SQL92,
    "sql92": _SQL92,
    "expression": _SQL92,
    "expressiontype": "use filterType",
    "pullbatchsize": _FETCH,
}
_SINK_TOPIC = "use topic, or add column topic to the rows"
_NO_GROUP = "leave it out; a sink has no group"
SINK_FOREIGN_NAMES: Mapping[str, str] = {
    **{name: hint for name, hint in SOURCE_FOREIGN_NAMES.items() if "endpoints" in hint},
    **dict.fromkeys(("subscribe", "topics", "topicpattern"), _SINK_TOPIC),
    **dict.fromkeys(("group", "groupid", "producergroup", "kafka.group.id"), _NO_GROUP),
    "includeheaders": "leave it out; column properties is always written",
    "tag": "give the rows a column tags",
    "tags": "give the rows a column tags",
}
_KAFKA = "leave it out; it is an option of Kafka"

SOURCE_FOREIGN_COLUMNS: Mapping[str, str] = {
    "value": "body",
    "payload": "body",
    "message": "body",
    "key": "keys",
    "tag": "tags",
    "headers": "properties",
    "partition": "queueId",
    "queue": "queueId",
    "offset": "queueOffset",
    "timestamp": "storeTimestamp",
}
_NOT_WRITTEN = frozenset({"queueOffset", "storeTimestamp"})
SINK_FOREIGN_COLUMNS: Mapping[str, str] = {
    name: column for name, column in SOURCE_FOREIGN_COLUMNS.items() if column not in _NOT_WRITTEN
}


# A former name that ends in Ms takes a number without a unit, in ms.
FORMER_NAMES = {
    "connectTimeoutMs": "connectTimeout",
    "pullTimeoutMs": "pullTimeout",
    "sendTimeoutMs": "sendTimeout",
    "commitTimeoutMs": "commitTimeout",
    "retryBackoffMs": "retryBackoff",
    "brokerAbsenceTimeout": "brokerUnavailableTimeout",
    "withRetries": "includeRetryTopic",
}
_BY_LOWER_CASE = {former.lower(): (former, name) for former, name in FORMER_NAMES.items()}
_warned: set[str] = set()


def option_hint(name: str, known: Mapping[str, str], foreign_names: Mapping[str, str]) -> str:
    """Returns the advice about an unknown option; `known` are the names by their lower case."""
    if name in foreign_names:
        return foreign_names[name]
    if name.startswith("kafka."):
        return _KAFKA
    near = _near(name, known)
    return f"did you mean {known[near[0]]}?" if near else f"known: {', '.join(known.values())}"


def column_hint(name: str, known: Iterable[str], foreign_names: Mapping[str, str]) -> str:
    """Returns the advice about an unknown column."""
    columns = {column.lower(): column for column in known}
    meant = foreign_names.get(name.lower())
    if meant is not None:
        return f"use {meant}"
    near = _near(name.lower(), columns, 0.8)
    listed = f"the columns are {', '.join(columns.values())}"
    return f"did you mean {columns[near[0]]}? {listed}" if near else listed


def _near(name: str, known: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """Returns the known name that is most similar, if there is one."""
    # Imported here, since only mistyped names need it.
    from difflib import get_close_matches

    return get_close_matches(name, known, 1, cutoff)


def with_present_names(given: Mapping[str, str]) -> dict[str, str]:
    """Returns options by their present names in lower case; warns once for each former name.

    Raises OptionError if an option is set under both names.
    """
    present = {name: value for name, value in given.items() if name not in _BY_LOWER_CASE}
    for key in given.keys() - present.keys():
        former, name = _BY_LOWER_CASE[key]
        if name.lower() in present:
            raise OptionError(
                f"options {former} and {name} are both set, and are the same option; "
                f"leave {former} out"
            )
        if former not in _warned:
            _warned.add(former)
            logger.warning("option %s is now %s; version 1.0 refuses %s", former, name, former)
        unit = "ms" if former.endswith("Ms") else ""
        present[name.lower()] = f"{given[key].strip()}{unit}"
    return present

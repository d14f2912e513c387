"""Option and column names of other connectors, with their names here.

They come from Spark's Kafka source, Kafka itself, RocketMQ's clients and rocketmq-spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_ENDPOINTS = "use endpoints, with host:port of a broker"
_NAME_SERVER = "use nameServer for a cluster, or endpoints with host:port of a broker of rocketpy"
_GROUP = "use consumerGroup"
_TOPIC = "use topic, or topics for several"
_FILTER = "use filter, as in TagA || TagB"
_SQL92 = "use filter with filterType SQL92"
_FETCH = "use fetchBytesMax, in bytes"

# Lower-case names, since Spark ignores case.
SOURCE_HABITS: Mapping[str, str] = {
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
    "kafkaconsumer.polltimeoutms": "use pullTimeoutMs",
    "fetchoffset.numretries": "use retryTimesMax",
    "fetchoffset.retryintervalms": "use retryBackoffMs",
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
    "pulltimeout": "use pullTimeoutMs",
}
_SINK_TOPIC = "use topic, or give the rows a column topic"
_NO_GROUP = "leave it out; a sink has no group"
SINK_HABITS: Mapping[str, str] = {
    **{name: hint for name, hint in SOURCE_HABITS.items() if "endpoints" in hint},
    **dict.fromkeys(("subscribe", "topics", "topicpattern"), _SINK_TOPIC),
    **dict.fromkeys(("group", "groupid", "producergroup", "kafka.group.id"), _NO_GROUP),
    "includeheaders": "leave it out; column properties is always written",
    "tag": "give the rows a column tags",
    "tags": "give the rows a column tags",
}
_KAFKA = "leave it out; it is one of Kafka's own"

SOURCE_COLUMN_HABITS: Mapping[str, str] = {
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
SINK_COLUMN_HABITS: Mapping[str, str] = {
    name: column for name, column in SOURCE_COLUMN_HABITS.items() if column not in _NOT_WRITTEN
}


def option_hint(name: str, known: Mapping[str, str], habits: Mapping[str, str]) -> str:
    """Returns the advice about an unknown option; `known` are the names by their lower case."""
    if name in habits:
        return habits[name]
    if name.startswith("kafka."):
        return _KAFKA
    near = _near(name, known)
    return f"did you mean {known[near[0]]}?" if near else f"known: {', '.join(known.values())}"


def column_hint(name: str, known: Iterable[str], habits: Mapping[str, str]) -> str:
    """Returns the advice about an unknown column."""
    columns = {column.lower(): column for column in known}
    meant = habits.get(name.lower())
    if meant is not None:
        return f"use {meant}"
    near = _near(name.lower(), columns, 0.8)
    listed = f"the columns are {', '.join(columns.values())}"
    return f"did you mean {columns[near[0]]}? {listed}" if near else listed


def _near(name: str, known: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """Returns the known name that is most similar, if there is one."""
    # Only for mistyped names.
    from difflib import get_close_matches

    return get_close_matches(name, known, 1, cutoff)

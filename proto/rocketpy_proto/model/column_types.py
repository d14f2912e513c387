"""Names and types of a message's columns in Spark and Arrow.

A module apart from the codec: the planner of a read names columns and decodes none.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")
# Every column, in Spark's order. tags, keys and messageGroup are null if absent. Times are null if
# Spark cannot represent them. bodyError is null if the body is as its producer sent it.
COLUMN_TYPES: Mapping[str, pa.DataType] = {
    "topic": pa.string(),
    "queueId": pa.int32(),
    "queueOffset": pa.int64(),
    "body": pa.binary(),
    "tags": pa.string(),
    "keys": pa.list_(pa.string()),
    "properties": pa.map_(pa.string(), pa.string()),
    "msgId": pa.string(),
    "offsetMsgId": pa.string(),
    "bornTimestamp": TIMESTAMP,
    "storeTimestamp": TIMESTAMP,
    "bornHost": pa.string(),
    "storeHost": pa.string(),
    "reconsumeTimes": pa.int32(),
    "sysFlag": pa.int32(),
    "commitLogOffset": pa.int64(),
    "messageGroup": pa.string(),
    "bodyError": pa.string(),
}
NULLABLE_COLUMNS = frozenset(
    {"tags", "keys", "bornTimestamp", "storeTimestamp", "messageGroup", "bodyError"}
)

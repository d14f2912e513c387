"""The columns of a message as Spark and Arrow show them: names and types. Holds no state.

Apart from the codec, since whoever plans a read names columns and decodes none.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")
# Every column, in Spark's order. tags, keys and messageGroup are null where absent, times where
# Spark cannot show them, bodyError where the body is as its producer gave it.
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

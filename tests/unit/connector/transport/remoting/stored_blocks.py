"""Blocks in the sink's form, and the messages of their batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pyspark_rocketpy.transport.remoting.send.requests import SendBatch
from pyspark_rocketpy.transport.write_values import Block
from rocketpy_proto.record import BlockColumns, RecordBlock, encode_block
from rocketpy_proto.record.rewrite import rewritten
from rocketpy_proto.remoting import BatchMessage, decode_batch
from tests.unit.connector.transport.remoting.scripted_cluster import TOPIC


def stored(
    messages: Sequence[BatchMessage],
    queue_ids: Sequence[int] = (),
    *,
    topic: str = TOPIC,
    queue_id: int = 0,
    delay: int = 0,
    is_movable: bool = False,
) -> Block:
    """Returns messages as stored records; `queue_ids` are theirs, `queue_id` is the block's."""
    bodies = pa.array([bytes(message.body) for message in messages], pa.binary())
    own = pa.array(list(queue_ids) or [queue_id] * len(messages), pa.int32())
    encoded = encode_block(BlockColumns(bodies, topic, own))
    records = rewritten(
        RecordBlock.parse(encoded.data, encoded.sizes),
        topic,
        pa.array([message.properties for message in messages], pa.binary()),
        {"flag": np.array([message.flag for message in messages], np.int32)},
    )
    sizes = records.sizes.astype(">i4").tobytes()
    return Block(topic, queue_id, sizes, records.data.tobytes(), delay, is_movable)


def of_bodies(*bodies: bytes, queue_id: int = 0, is_movable: bool = False) -> Block:
    """Returns messages without properties."""
    messages = [BatchMessage(body) for body in bodies]
    return stored(messages, queue_id=queue_id, is_movable=is_movable)


def messages_of(send_batch: SendBatch) -> list[BatchMessage]:
    """Returns the messages that a send batch stores."""
    if send_batch.properties is None:
        return decode_batch(send_batch.body)
    return [BatchMessage(send_batch.body, send_batch.properties.encode(), send_batch.flag)]

"""A Spark driver that copies a cluster's topic to another, until it ends or is killed.

python -m tests.interop.spark.kills.copying_program NAME_SERVERS SOURCE TARGET CHECKPOINT [DELIVERY]
"""

from __future__ import annotations

import sys

from tests.support.spark.copying_driver import session

BATCH_ROWS = 60


def main() -> None:
    """Copies all available messages."""
    name_servers, source, target, checkpoint, *delivery = sys.argv[1:]
    options = {"nameServer": name_servers}
    stream = session(1).readStream.format("rocketpy").options(**options, topic=source)
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", BATCH_ROWS)
    writer = stream.load().select("body").writeStream.format("rocketpy")
    writer = writer.options(**options, topic=target, checkpointLocation=checkpoint)
    for given in delivery:
        # Several blocks a task, so that a kill can leave a part of its rows.
        writer = writer.option("delivery", given).option("batchBytesMax", 1_024)
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()

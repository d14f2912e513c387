"""Options of both connectors that lines change from their defaults."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_rocketpy.options.choices import DeliveryGuarantee

Options = Mapping[str, str]
NO_OPTIONS: Options = {}
AT_LEAST_ONCE: Options = {"delivery": DeliveryGuarantee.AT_LEAST_ONCE.value}
EXACTLY_ONCE: Options = {"delivery": DeliveryGuarantee.EXACTLY_ONCE.value}
# Of Kafka's tuned columns: larger fetches, more records a poll, larger batches that wait for rows.
TUNED_READ: Options = {
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    "kafka.max.poll.records": "10000",
    "kafka.receive.buffer.bytes": str(1 << 20),
}
TUNED_WRITE: Options = {
    "kafka.batch.size": str(256 << 10),
    "kafka.linger.ms": "20",
    "kafka.buffer.memory": str(128 << 20),
}


def tuned_table() -> str:
    """Returns the tuned options as docs/peers.md shows them."""
    rows = [
        f"| `{name}` | {value} | {used} |"
        for used, options in (("read", TUNED_READ), ("write", TUNED_WRITE))
        for name, value in options.items()
    ]
    return "\n".join(["| option | value | used to |", "|---|---|---|", *rows])

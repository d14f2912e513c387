"""Each option of docs/clusters.md at the embedded broker's name server: it works, or says why not.

Every case reads or writes through the data source's own readers and writers, as Spark does.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_rocketpy.datasource import DefaultSource
from pyspark_rocketpy.errors import RocketpyError
from pyspark_rocketpy.options.sink_specs import SINK_OPTIONS
from pyspark_rocketpy.options.source_specs import SOURCE_OPTIONS
from pyspark_rocketpy.transport.remoting.cluster.client import _clusters
from pyspark_rocketpy.transport.remoting.net.connections import SHARED
from rocketpy_broker import LocalBroker

_numbers = itertools.count()
LONG_AGO, MUCH_LATER = "2000-01-01T00:00:00Z", "2100-01-01T00:00:00Z"
ALL, EVEN, ODD = "012345", "024", "135"


def at(topic: str = "orders", **offsets: int | str) -> str:
    """Returns JSON that names queues of the broker, such as `q0=2`."""
    return json.dumps({topic: {"broker-a": {key[1:]: at for key, at in offsets.items()}}})


@dataclass(frozen=True)
class Case:
    """Options, and the bodies that are read or written with them, or words of the error."""

    given: dict[str, str]
    bodies: str = ""
    error: str = ""
    # The number of tasks, if it counts.
    tasks: int | None = None
    # The options that the case is about, without the helping ones.
    about: tuple[str, ...] = field(default=())

    @property
    def names(self) -> tuple[str, ...]:
        return self.about or tuple(self.given)


SQL = {"filter": "TAGS = 'odd'", "filterType": "SQL92"}
BY_TIME = {"startingOffsetsByTimestamp": at(q0=MUCH_LATER)}
ACCESS = {"accessKey": "user", "secretKey": "secret", "securityToken": "token"}
FILES = {"tlsCaFile": "/no/ca.pem", "tlsCertFile": "/no/c.pem", "tlsKeyFile": "/no/k.pem"}
# With the authority of the broker's certificate, which is its own.
CA = "the broker's own"
TLS = {"tls": "true", "tlsCaFile": CA}
# A broker without access control, which has no machine room in its name.
READS = [
    Case({}, ALL, about=("nameServer", "topic")),
    Case({"endpoints": "127.0.0.1:1"}, error="endpoints and nameServer are both set"),
    Case({"topic": "", "topics": "orders,others"}, ALL + "x", about=("topics",)),
    Case({"topic": "", "topicPattern": "o.*s"}, ALL + "x", about=("topicPattern",)),
    Case({"includeRetryTopic": "true", "consumerGroup": "retriers"}, ALL + "x"),
    Case({"startingOffsets": at(q0=1, q1=-1)}, "24"),
    Case({"endingOffsets": at(q0=1, q1=-1)}, "0135"),
    Case({"startingTimestamp": LONG_AGO}, ALL),
    Case({**BY_TIME, "startingOffsetsByTimestampStrategy": "latest"}, ODD),
    Case(BY_TIME, error="startingOffsetsByTimestamp.*no message"),
    Case({"endingTimestamp": LONG_AGO}, ""),
    Case({"endingTimestamp": LONG_AGO.rstrip("Z"), "timeZone": "Europe/Berlin"}, ""),
    Case({"endingOffsetsByTimestamp": at(q0=LONG_AGO)}, ODD),
    Case({"minPartitions": "4"}, ALL, tasks=4),
    Case({"maxRecordsPerPartition": "1"}, ALL, tasks=6),
    Case({"allocation": "averagely", "minPartitions": "1"}, ALL, tasks=1, about=("allocation",)),
    Case(
        {"allocation": "config", "allocationConfig": '[["orders:broker-a:1","orders:broker-a:0"]]'},
        ALL,
        tasks=1,
    ),
    Case({"allocation": "machineRoom", "machineRooms": "room"}, error="names no room before an @"),
    Case({"filter": "even"}, EVEN),
    Case(SQL, ODD),
    Case({"keys": "k3,k4"}, "34"),
    Case({"pushDownFilters": "true"}, ALL),
    Case({"columns": "body,tags"}, ALL),
    Case({"fetchBytesMax": "1024", "prefetchBytesMax": "1024"}, ALL),
    Case({"connectTimeout": "5s", "retryTimesMax": "1", "retryBackoff": "1ms"}, ALL),
    Case({"pullTimeout": "5s", "pullsInFlightMax": "1", "brokerUnavailableTimeout": "1s"}, ALL),
    Case(ACCESS, ALL),
    Case({"tls": "true"}, error="certificate that is not accepted.*tlsCaFile"),
    Case({"tls": "true", "tlsVerify": "false"}, ALL),
    Case(TLS, ALL),
    Case({**TLS, "tlsServerName": "localhost"}, ALL),
    Case({**TLS, "tlsServerName": "elsewhere"}, error="tlsServerName"),
    Case({"tls": "true", "tlsCaFile": "/no/ca.pem"}, error="tlsCaFile"),
    Case({"tls": "true", "tlsCertFile": "/no/c.pem", "tlsKeyFile": "/no/k.pem"}, error="tlsCert"),
]
# Options that only a stream has; a stream that sees 6 messages plans this many of them.
STREAMS = {
    "maxOffsetsPerTrigger": ("2", 2),
    "minOffsetsPerTrigger": ("6", 6),
    "maxTriggerDelay": ("1s", 6),
    "maxBytesPerTrigger": ("1", 1),
    "commitOffsets": ("false", 6),
    "pollTimeout": ("10ms", 6),
    "failOnDataLoss": ("false", 6),
}
EFFECTIVELY = {"delivery": "effectively-once"}
WRITES = [
    Case({}, "new", about=("nameServer", "topic")),
    Case({"endpoints": "127.0.0.1:1"}, error="endpoints and nameServer are both set"),
    Case({"delivery": "at-least-once"}, "new"),
    Case({"delivery": "exactly-once"}, error="which a cluster of Apache RocketMQ cannot do"),
    Case({**EFFECTIVELY, "controlTopic": "control"}, "new"),
    Case({**EFFECTIVELY, "controlTopic": "nowhere"}, error="nowhere"),
    Case({"txnAppId": "app", "txnVersion": "1"}, error="txnAppId needs delivery exactly-once"),
    Case({"batchBytesMax": "1024", "sendTimeout": "5s", "commitTimeout": "1s"}, "new"),
    Case({"failOnDataLoss": "true"}, "new"),
    Case({"connectTimeout": "5s", "retryTimesMax": "1", "retryBackoff": "1ms"}, "new"),
    Case(ACCESS, "new"),
    Case({"tls": "true", "tlsVerify": "false"}, "new"),
    Case({**TLS, "tlsServerName": "localhost"}, "new"),
    Case({"tls": "true", **FILES}, error="tlsCaFile"),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    """Yields a broker with a topic of six messages, another topic, and its message's retry."""
    with LocalBroker(tls=True) as local:
        local.create_topic("orders", queues=2)
        for number in range(6):
            tag = "odd" if number % 2 else "even"
            local.send("orders", str(number), tags=tag, keys=f"k{number}", queue_id=number % 2)
        local.create_topic("others", queues=1)
        local.send("others", "x")
        local.send_back(local.messages("others")[0], "retriers", delay_level=1)
        local.advance_clock(1)
        local.create_topic("control", queues=1)
        yield local
        SHARED.close()
        _clusters.clear()


def source(broker: LocalBroker, topic: str, given: dict[str, str]) -> DefaultSource:
    options = {"nameServer": broker.name_server, "topic": topic, **given}
    if options.get("tlsCaFile") == CA:
        options["tlsCaFile"] = broker.tls_ca_file
    return DefaultSource({name: value for name, value in options.items() if value})


def read(broker: LocalBroker, given: dict[str, str]) -> tuple[str, int]:
    """Reads a batch; returns the bodies in order, and the number of tasks."""
    reading = source(broker, "orders", given)
    reader = reading.reader(reading.schema())
    tasks = reader.partitions()
    batches = [batch for task in tasks for batch in reader.read(task)]
    bodies = (body.decode() for batch in batches for body in batch["body"].to_pylist())
    return "".join(sorted(bodies)), len(tasks)


def name_of(case: Case) -> str:
    return "-".join(f"{name}={case.given.get(name, '')}"[:40] for name in case.names)


@pytest.mark.parametrize("case", READS, ids=name_of)
def test_an_option_of_the_source_works_or_says_why_not(broker: LocalBroker, case: Case) -> None:
    if case.error:
        with pytest.raises(RocketpyError, match=case.error):
            read(broker, case.given)
        return
    bodies, tasks = read(broker, case.given)
    assert bodies == case.bodies
    assert case.tasks in {None, tasks}


@pytest.mark.parametrize("name", STREAMS)
def test_an_option_of_streams_works(broker: LocalBroker, name: str) -> None:
    value, count = STREAMS[name]
    given = {"startingOffsets": "earliest", "consumerGroup": f"of-{name}", name: value}
    streaming = source(broker, "orders", given)
    reader = streaming.streamReader(streaming.schema())
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, reader.getDefaultReadLimit())
    tasks = reader.partitions(begin, end)
    assert sum(len(batch) for task in tasks for batch in reader.read(task)) == count
    reader.commit(end)
    committed = 0 if name == "commitOffsets" else count
    assert broker.lag("orders", f"of-{name}").total == len(ALL) - committed


@pytest.mark.parametrize("case", WRITES, ids=name_of)
def test_an_option_of_the_sink_works_or_says_why_not(broker: LocalBroker, case: Case) -> None:
    topic = f"written-{next(_numbers)}"
    broker.create_topic(topic, queues=1)
    schema = StructType([StructField("body", BinaryType())])
    rows = pa.record_batch({"body": pa.array([b"new"])})

    def write() -> None:
        writer = source(broker, topic, case.given).writer(schema, overwrite=False)
        writer.commit([writer.write(iter([rows]))])

    if case.error:
        with pytest.raises(RocketpyError, match=case.error):
            write()
    else:
        write()
    assert [message.text for message in broker.messages(topic)] == ([] if case.error else ["new"])


def test_every_option_has_a_case() -> None:
    reads = {name for case in READS for name in case.names} | {*STREAMS}
    assert reads == {spec.name for spec in SOURCE_OPTIONS}
    writes = {name for case in WRITES for name in case.names}
    assert writes == {spec.name for spec in SINK_OPTIONS}

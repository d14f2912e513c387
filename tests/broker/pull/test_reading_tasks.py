"""Source tasks at a real broker: through kills, restarts and odd segments."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pyarrow as pa
import pytest

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import DataLossError
from pyspark_rocketpy.offsets import QueueRange
from pyspark_rocketpy.source.columns import arrow_schema, source_schema
from pyspark_rocketpy.source.message_filter import MessageFilter
from pyspark_rocketpy.source.range_reader import ReadConfig, read_ranges
from pyspark_rocketpy.transport.grpc_v1.client import forget_client
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from pyspark_rocketpy.transport.grpc_v1.transport import GrpcTransport
from pyspark_rocketpy.transport.values import PullOptions, RetryPolicy, Subscription
from rocketpy_broker import LocalBroker
from rocketpy_proto.rocketpy.v1 import broker_pb2, broker_pb2_grpc
from tests.support.blocks import wire_block
from tests.support.queues import Q0
from tests.support.time_limits import WAIT_SECONDS_MAX

KIB = 1 << 10
SEGMENT_BYTES = 1 << 20
FETCH_BYTES = 128 * KIB
BLOCKS, BLOCK_MESSAGES = 24, 400
COUNT = BLOCKS * BLOCK_MESSAGES
TAGS = ("Aa", "BB", "other")
SCHEMA = arrow_schema(source_schema(("*",)))


def fill(broker: LocalBroker) -> None:
    """Appends messages of growing bodies and changing tags, over several log segments."""
    broker.create_topic("T", queues=1)

    def requests() -> Iterator[broker_pb2.AppendRequest]:
        for number in range(BLOCKS):
            bodies = [b"%d." % index * (1 + number * 7 % 97) for index in range(BLOCK_MESSAGES)]
            keys = [f"key-{number}-{index}" for index in range(BLOCK_MESSAGES)]
            block = wire_block("T", bodies, tags=TAGS[number % len(TAGS)], keys=keys)
            yield broker_pb2.AppendRequest(
                topic="T", records=block.records, record_sizes=block.record_sizes
            )

    with grpc.insecure_channel(broker.endpoint) as channel:
        for response in broker_pb2_grpc.BrokerStub(channel).Append(
            requests(), timeout=WAIT_SECONDS_MAX
        ):
            assert response.status.code == 0, response.status.remark


def local_broker(folder: Path) -> LocalBroker:
    """Returns a broker with small segments, so that many responses are short."""
    return LocalBroker(folder, commit_log_segment_bytes=SEGMENT_BYTES)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """Yields a filled broker; a test that kills it starts it again."""
    with local_broker(tmp_path_factory.mktemp("reading") / "store") as running:
        fill(running)
        yield running


def config_of(*endpoints: str) -> ReadConfig:
    """Returns a config with small responses and little prefetch, so that a kill comes midway."""
    client = ClientConfig(endpoints, 20_000, prefetch_bytes_max=FETCH_BYTES)
    transport = GrpcTransport(client, RetryPolicy(16, 100))
    return ReadConfig(
        transport, PullOptions("group", FETCH_BYTES, fail_on_data_loss=True), MessageFilter()
    )


def read(
    config: ReadConfig, begin: int = 0, end: int = COUNT, after_batch: Callable[[int], object] = id
) -> list[bytes]:
    """Returns the batches of a range as Spark gets them; calls `after_batch` after each."""
    found = []
    try:
        for batch in read_ranges(config, (QueueRange("T", 0, begin, end),), SCHEMA):
            found.append(batch.serialize().to_pybytes())
            after_batch(len(found))
    finally:
        assert isinstance(config.transport, GrpcTransport)
        forget_client(config.transport.client)
    return found


def rows(batches: list[bytes]) -> pa.Table:
    """Returns all rows of the batches."""
    parsed = [pa.ipc.read_record_batch(pa.py_buffer(batch), SCHEMA) for batch in batches]
    return pa.Table.from_batches(parsed, SCHEMA)


def filtered(config: ReadConfig, *tags: str) -> ReadConfig:
    """Returns the config for these tags only."""
    wanted = MessageFilter(tags=tags)
    pull = replace(config.pull, tags_codes=wanted.tags_codes)
    return replace(config, pull=pull, wanted=wanted)


def matching(config: ReadConfig, expression: str) -> ReadConfig:
    """Returns the config for what an expression matches."""
    return replace(config, pull=replace(config.pull, expression=expression))


class Crashes:
    """Kills of the broker after batches 2 and 5; a task that waits finds it running again."""

    def __init__(self, broker: LocalBroker) -> None:
        self.mended_count = 0
        self._broker = broker
        self._is_down = False

    def after_batch(self, count: int) -> None:
        if count in {2, 5}:
            self._broker.kill()
            self._is_down = True

    def mend(self, _wait_ms: int = 0) -> None:
        if self._is_down:
            self._broker.start()
            self._is_down = False
            self.mended_count += 1


@pytest.mark.parametrize("tags", [(), ("Aa",), ("Aa", "other")])
def test_s4_k03_a_killed_broker_changes_no_byte_of_any_batch(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch, tags: tuple[str, ...]
) -> None:
    config = config_of(broker.endpoint)
    config = filtered(config, *tags) if tags else config
    undisturbed = read(config)
    assert read(config) == undisturbed
    crashes = Crashes(broker)
    monkeypatch.setattr(clock, "sleep_ms", crashes.mend)
    assert read(config, after_batch=crashes.after_batch) == undisturbed
    assert crashes.mended_count == 2


def test_c04_a_killed_broker_changes_no_byte_of_what_an_expression_matches(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = matching(config_of(broker.endpoint), "TAGS <> 'BB' AND NOT (KEYS ENDSWITH '7')")
    undisturbed = read(config)
    assert read(config) == undisturbed
    crashes = Crashes(broker)
    monkeypatch.setattr(clock, "sleep_ms", crashes.mend)
    assert read(config, after_batch=crashes.after_batch) == undisturbed
    assert crashes.mended_count == 2


def test_c04_only_what_matches_comes(broker: LocalBroker) -> None:
    config = matching(config_of(broker.endpoint), "TAGS IN ('BB') AND KEYS ENDSWITH '-7'")
    found = rows(read(config, 3, COUNT - 3))
    numbers = [n for n in range(BLOCKS) if TAGS[n % len(TAGS)] == "BB"]
    assert found["keys"].to_pylist() == [[f"key-{number}-7"] for number in numbers]
    assert found["queueOffset"].to_pylist() == [n * BLOCK_MESSAGES + 7 for n in numbers]
    assert read(matching(config_of(broker.endpoint), "TAGS = 'none'")) == []


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_c04_messages_that_are_gone_are_lost_whatever_the_expression(
    tmp_path: Path, fail_on_data_loss: bool
) -> None:
    with LocalBroker(tmp_path / "store", commit_log_segment_bytes=SEGMENT_BYTES) as broker:
        fill(broker)
        broker.stop()
        segments = sorted((tmp_path / "store" / "commitlog").iterdir())
        segments[0].unlink()
        broker.start()
        config = matching(config_of(broker.endpoint), "KEYS ENDSWITH '-7'")
        pull = replace(config.pull, fail_on_data_loss=fail_on_data_loss)
        config = replace(config, pull=pull)
        if fail_on_data_loss:
            with pytest.raises(DataLossError, match=r"messages are gone"):
                read(config)
            return
        kept = [n for n in range(BLOCKS) if n * BLOCK_MESSAGES + 7 >= _minimum(broker)]
        offsets = rows(read(config))["queueOffset"].to_pylist()
        assert offsets == [n * BLOCK_MESSAGES + 7 for n in kept]
        assert 0 < len(kept) < BLOCKS


def _minimum(broker: LocalBroker) -> int:
    """Returns the queue's minimum offset now."""
    queries = config_of(broker.endpoint).transport.offset_queries()
    return queries.bounds(Subscription(("T",), None, ""))["T"][Q0].min_offset


def test_s4_batches_are_bounded_and_rows_complete(broker: LocalBroker) -> None:
    found = rows(read(config_of(broker.endpoint), 17, COUNT - 3))
    assert found["queueOffset"].to_pylist() == list(range(17, COUNT - 3))
    assert found["keys"].to_pylist()[0] == ["key-0-17"]


def test_c03_only_the_wanted_tags_come(broker: LocalBroker) -> None:
    found = rows(read(filtered(config_of(broker.endpoint), "BB")))
    wanted = [n for n in range(COUNT) if TAGS[n // BLOCK_MESSAGES % len(TAGS)] == "BB"]
    assert found["queueOffset"].to_pylist() == wanted
    assert set(found["tags"].to_pylist()) == {"BB"}


def test_c03_a_range_without_the_wanted_tag_is_empty(broker: LocalBroker) -> None:
    assert read(filtered(config_of(broker.endpoint), "none")) == []
    assert read(filtered(config_of(broker.endpoint), "BB"), 0, BLOCK_MESSAGES) == []


def test_k03_another_endpoint_takes_over(broker: LocalBroker, tmp_path: Path) -> None:
    undisturbed = read(config_of(broker.endpoint))
    broker.stop()
    # The index is large, sparse, and rebuilt.
    shutil.copytree(broker.data, tmp_path / "store", ignore=shutil.ignore_patterns("index"))
    broker.start()
    with local_broker(tmp_path / "store") as other:
        found = read(
            config_of(other.endpoint, broker.endpoint),
            after_batch=lambda count: other.kill() if count == 3 else None,
        )
    assert found == undisturbed

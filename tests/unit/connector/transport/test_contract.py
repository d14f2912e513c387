"""Contract of source and transport: each transport passes this suite."""

from __future__ import annotations

import contextlib
import pickle
import threading
from dataclasses import replace

import pytest

from pyspark_rocketpy.errors import BrokerError, ConnectionFailedError, DataLossError
from pyspark_rocketpy.transport.interface import SinkTransport
from pyspark_rocketpy.transport.values import QueueTime, Subscription
from pyspark_rocketpy.transport.write_values import WriteQueues
from rocketpy_proto.record import RecordBlock, decode_record, java_hash
from tests.unit.connector.transport.contract import OPTIONS, Setup, block, of_rocketpy, pulled


def queues(transport: SinkTransport, topic: str) -> WriteQueues:
    with contextlib.closing(transport.block_writer(None)) as writer:
        return writer.write_queues([topic])[topic]


def test_bounds_tell_of_every_queue_of_the_topics_that_exist(setup: Setup) -> None:
    topic = setup.topic(queues=3)
    setup.send(topic, b"a", b"b", queue_id=1)
    queries = setup.source.offset_queries()
    bounds = queries.bounds(Subscription((topic, "missing"), None, "g"))
    assert list(bounds) == [topic]
    found = {queue: (each.min_offset, each.max_offset) for queue, each in bounds[topic].items()}
    assert found == {setup.queue(0): (0, 0), setup.queue(1): (0, 2), setup.queue(2): (0, 0)}
    assert {queue.committed_offset for queue in bounds[topic].values()} == {-1}


def test_a_pattern_stands_for_whole_names(setup: Setup) -> None:
    topic = setup.topic()
    setup.create_topic(f"{topic}-more", 1)
    bounds = setup.source.offset_queries().bounds(Subscription((), f"{topic}-m.*", "g"))
    assert list(bounds) == [f"{topic}-more"]


def test_progress_that_is_committed_shows_in_the_bounds_of_its_group(setup: Setup) -> None:
    topic = setup.topic()
    setup.send(topic, b"a", b"b")
    queries = setup.source.offset_queries()
    queries.commit("mine", {topic: {setup.queue(0): 1}}, {})
    for group, offset in (("mine", 1), ("other", -1)):
        bounds = queries.bounds(Subscription((topic,), None, group, wants_committed=True))
        assert bounds[topic][setup.queue(0)].committed_offset == offset


def test_bounds_that_are_known_wait_for_a_message(setup: Setup) -> None:
    topic = setup.topic()
    queries = setup.source.offset_queries()
    subscription = Subscription((topic,), None, "g")
    known = queries.bounds(subscription)
    assert queries.bounds(subscription, known, 50) == known
    sender = threading.Timer(0.2, setup.send, [topic, b"a"])
    sender.start()
    try:
        found = queries.bounds(subscription, known, 60_000)[topic]
        assert found[setup.queue(0)].max_offset == 1
    finally:
        sender.join()


def test_s5_hidden_queues_are_answered_by_their_numbers(setup: Setup) -> None:
    topic = setup.topic(queues=3)
    setup.send(topic, b"a", b"b", queue_id=1)
    setup.send(topic, b"c", queue_id=2)
    setup.show_queues(topic, 1)
    queries = setup.source.offset_queries()
    first, second, third = map(setup.queue, range(3))
    assert queries.bounds(Subscription((topic,), None, ""))[topic].keys() == {first}
    bounds = queries.hidden_bounds({topic: {second: 0, third: 0}, "missing": {second: 0}})
    assert list(bounds) == [topic]
    found = {queue: (each.min_offset, each.max_offset) for queue, each in bounds[topic].items()}
    assert found == {second: (0, 2), third: (0, 1)}
    assert all(each.is_hidden for each in bounds[topic].values())
    setup.show_queues(topic, 2)
    bounds = queries.hidden_bounds({topic: {second: 0, third: 0}})
    assert [bounds[topic][queue].is_hidden for queue in (second, third)] == [False, True]


@of_rocketpy
def test_s5_hidden_queues_were_cut_where_the_others_were(setup: Setup) -> None:
    topic = setup.topic(queues=2)
    setup.send(topic, b"a", b"b", queue_id=1)
    queries = setup.source.offset_queries()
    queries.bounds(Subscription((topic,), None, ""))
    known, queue = queries.recovery_id, setup.queue(1)
    setup.restart()
    setup.send(topic, b"c", queue_id=1)
    setup.show_queues(topic, 1)
    assert queries.hidden_bounds({topic: {queue: 2}}, known)[topic][queue].cut_offset == 2


@of_rocketpy
def test_s5_bounds_tell_who_knows_an_older_recovery_where_queues_were_cut(setup: Setup) -> None:
    topic = setup.topic()
    setup.send(topic, b"a", b"b")
    subscription = Subscription((topic,), None, "g")
    queries = setup.source.offset_queries()
    assert queries.recovery_id == ""

    def cuts(recovery_id: str, wait_ms_max: int = 0) -> list[int | None]:
        bounds = queries.bounds(subscription, known, wait_ms_max, recovery_id)
        return [queue.cut_offset for queue in bounds[topic].values()]

    known = queries.bounds(subscription)
    first = queries.recovery_id
    assert first
    assert cuts(first) == cuts("none of this store") == [None, None]
    setup.restart()
    # Answered at once, though the maxima are known.
    assert cuts(first, 20_000) == [2, 0]
    second = queries.recovery_id
    assert second != first
    assert cuts(second) == cuts("") == [None, None]
    setup.send(topic, b"c")
    assert cuts(first) == [2, 0]
    setup.restart()
    assert cuts(first) == [2, 0]
    assert cuts(second) == [3, 0]


@of_rocketpy
def test_s5_a_pull_gives_nothing_that_was_stored_since_a_recovery_behind_its_plan(
    setup: Setup,
) -> None:
    topic = setup.topic()
    setup.send(topic, b"a", b"b")
    queries = setup.source.offset_queries()
    queries.bounds(Subscription((topic,), None, "g"))
    options = replace(OPTIONS, recovery_id=queries.recovery_id)
    setup.restart()
    setup.send(topic, b"c", b"d")
    assert pulled(setup.source, setup.part(topic, 0, 2), options) == [b"a", b"b"]
    for begin in (1, 2, 3):
        part = setup.part(topic, begin, 4)
        with pytest.raises(DataLossError, match=r"offsets \[\d, 4\) of queue 0 .* are gone"):
            pulled(setup.source, part, options)
        rest = pulled(setup.source, part, replace(options, fail_on_data_loss=False))
        assert rest == [b"b"][begin - 1 :]
        for recovery_id in ("", "none of this store"):
            assert pulled(setup.source, part, replace(options, recovery_id=recovery_id))


def test_blocks_show_in_the_order_of_their_sends(setup: Setup) -> None:
    topic = setup.topic()
    setup.write(None, *(block(topic, [b"%d" % number]) for number in range(30)))
    assert setup.bodies(topic) == [b"%d" % number for number in range(30)]
    assert setup.bodies(topic, queue_id=1) == []


def test_a_pull_gives_the_range_that_it_is_asked_for(setup: Setup) -> None:
    topic = setup.topic()
    setup.send(topic, *(b"%d" % number for number in range(10)))
    part = setup.part(topic, 3, 8)
    assert pulled(setup.source, part, OPTIONS) == [b"3", b"4", b"5", b"6", b"7"]
    offsets = [
        offset
        for chunk in setup.source.pull(part, OPTIONS)
        for offset in RecordBlock.parse(chunk.records, chunk.sizes).header["queue_offset"].tolist()
    ]
    assert offsets == [3, 4, 5, 6, 7]


def test_messages_that_are_gone_fail_a_pull_or_are_passed_over(setup: Setup) -> None:
    topic = setup.topic()
    setup.send(topic, b"a", b"b")
    part = setup.part(topic, 0, 5)
    with pytest.raises(DataLossError, match=r"offsets \[2, 5\) of queue 0"):
        pulled(setup.source, part, OPTIONS)
    options = replace(OPTIONS, fail_on_data_loss=False)
    assert pulled(setup.source, part, options) == [b"a", b"b"]


def test_tags_codes_leave_out_other_messages(setup: Setup) -> None:
    topic = setup.topic()
    for number, tags in enumerate(["A", "B", "A", None]):
        setup.send(topic, b"%d" % number, tags=tags)
    options = replace(OPTIONS, tags_codes=(java_hash("A"),), tags=("A",))
    assert setup.bodies(topic, options=options) == [b"0", b"2"]


def test_c04_an_expression_leaves_out_other_messages(setup: Setup) -> None:
    topic = setup.topic()
    for number, tags in enumerate(["A", "B", "A", None]):
        setup.send(topic, b"%d" % number, tags=tags)
    options = replace(OPTIONS, expression="TAGS = 'A'")
    assert setup.bodies(topic, options=options) == [b"0", b"2"]


def test_c04_what_is_wrong_with_an_expression_is_told(setup: Setup) -> None:
    queries = setup.source.offset_queries()
    assert queries.expression_fault("TAGS = 'A'") is None
    fault = queries.expression_fault("TAGS = 'A' garbage")
    assert fault is not None
    assert "at character 12" in fault


def test_a_topic_that_is_not_there_is_the_broker_s_error(setup: Setup) -> None:
    # A cluster's topic may be away with its broker, which is waited for.
    with pytest.raises((BrokerError, ConnectionFailedError), match="missing"):
        list(setup.source.pull(setup.part("missing", 0, 1), OPTIONS))
    with pytest.raises(BrokerError, match="missing"):
        queues(setup.sink, "missing")
    with pytest.raises(BrokerError, match="missing"):
        setup.send("missing", b"a")


def test_search_finds_the_first_message_of_a_time(setup: Setup) -> None:
    topic = setup.topic()
    setup.send(topic, b"a", b"b")
    queries = setup.source.offset_queries()
    chunks = list(setup.source.pull(setup.part(topic, 0, 1), OPTIONS))
    stored_ms = decode_record(bytes(chunks[0].records), 0).record.store_timestamp_ms
    asked = [
        QueueTime.of(topic, setup.queue(0), stored_ms),
        QueueTime.of(topic, setup.queue(0), stored_ms + 86_400_000),
        QueueTime.of(topic, setup.queue(1), 0),
    ]
    assert queries.search(asked) == [0, None, None]
    assert queries.search([]) == []


def test_ranges_are_cut_to_bytes_but_never_to_nothing(setup: Setup) -> None:
    topic = setup.topic()
    setup.send(topic, *[bytes([97]) * 1_000] * 10)
    queries = setup.source.offset_queries()
    whole = setup.part(topic, 0, 10)
    assert queries.limit_bytes([whole], 1 << 20) == [10]
    [end] = queries.limit_bytes([whole], 5_000)
    assert 2 <= end <= 5
    assert queries.limit_bytes([whole], 1) == [1]


def test_messages_with_a_key_lie_in_the_ranges_that_are_found(setup: Setup) -> None:
    topic = setup.topic()
    setup.send(topic, *(b"k%d" % number for number in range(20)))
    found = setup.source.offset_queries().find_keys([setup.part(topic, 2, 18)], ["k7", "k1"])
    offsets = {offset for part in found for offset in range(part.begin, part.end)}
    assert {(part.topic, part.queue_id) for part in found} == {(topic, 0)}
    assert 7 in offsets
    assert offsets <= set(range(2, 18))


def test_a_pickled_transport_reaches_the_same_broker(setup: Setup) -> None:
    topic = setup.topic(queues=5)
    source, sink = pickle.loads(pickle.dumps((setup.source, setup.sink)))
    assert queues(sink, topic).count == 5
    replace(setup, sink=sink).send(topic, b"a", queue_id=4)
    assert replace(setup, source=source).bodies(topic, queue_id=4) == [b"a"]
    limits = sink.limits()
    assert limits == setup.sink.limits()
    assert min(limits.body_bytes_max, limits.request_bytes_max) > 0
    assert source.offset_queries().broker_name() == setup.source.offset_queries().broker_name()

"""Contract of source and transport: each transport passes this suite."""

from __future__ import annotations

import contextlib
import pickle
import threading
from dataclasses import replace

import pytest

from pyspark_rocketpy.errors import BrokerError, DataLossError
from pyspark_rocketpy.offsets import QueueRange
from pyspark_rocketpy.transport.interface import SinkTransport
from pyspark_rocketpy.transport.values import PullOptions, QueueTime, Subscription
from pyspark_rocketpy.transport.write_values import WriteQueues
from rocketpy_proto.record import RecordBlock, decode_record, java_hash
from tests.support.queues import Q0, Q1, Q2
from tests.unit.connector.transport.contract import OPTIONS, Setup, block, pulled


def queues(transport: SinkTransport, topic: str) -> WriteQueues:
    with contextlib.closing(transport.block_writer(None)) as writer:
        return writer.write_queues([topic])[topic]


def test_bounds_tell_of_every_queue_of_the_topics_that_exist(setup: Setup) -> None:
    topic = setup.topic(queues=3)
    setup.send(topic, b"a", b"b", queue_id=1)
    queries = setup.transport.offset_queries()
    bounds = queries.bounds(Subscription((topic, "missing"), None, "g"))
    assert list(bounds) == [topic]
    queues = bounds[topic]
    assert [(queues[queue].min_offset, queues[queue].max_offset) for queue in (Q0, Q1, Q2)] == [
        (0, 0),
        (0, 2),
        (0, 0),
    ]
    assert {queue.committed_offset for queue in queues.values()} == {-1}


def test_a_pattern_stands_for_whole_names(setup: Setup) -> None:
    topic = setup.topic()
    setup.create_topic(f"{topic}-more", 1)
    bounds = setup.transport.offset_queries().bounds(Subscription((), f"{topic}-m.*", "g"))
    assert list(bounds) == [f"{topic}-more"]


def test_progress_that_is_committed_shows_in_the_bounds_of_its_group(setup: Setup) -> None:
    topic = setup.topic()
    setup.send(topic, b"a", b"b")
    queries = setup.transport.offset_queries()
    queries.commit("mine", {topic: {Q0: 1}}, {})
    for group, offset in (("mine", 1), ("other", -1)):
        bounds = queries.bounds(Subscription((topic,), None, group))
        assert bounds[topic][Q0].committed_offset == offset


def test_bounds_that_are_known_wait_for_a_message(setup: Setup) -> None:
    topic = setup.topic()
    queries = setup.transport.offset_queries()
    subscription = Subscription((topic,), None, "g")
    known = queries.bounds(subscription)
    assert queries.bounds(subscription, known, 50) == known
    sender = threading.Timer(0.2, setup.send, [topic, b"a"])
    sender.start()
    try:
        assert queries.bounds(subscription, known, 20_000)[topic][Q0].max_offset == 1
    finally:
        sender.join()


def test_s5_hidden_queues_are_answered_by_their_numbers(setup: Setup) -> None:
    topic = setup.topic(queues=3)
    setup.send(topic, b"a", b"b", queue_id=1)
    setup.send(topic, b"c", queue_id=2)
    setup.show_queues(topic, 1)
    queries = setup.transport.offset_queries()
    assert queries.bounds(Subscription((topic,), None, ""))[topic].keys() == {Q0}
    bounds = queries.hidden_bounds({topic: {Q1: 0, Q2: 0}, "missing": {Q1: 0}})
    assert list(bounds) == [topic]
    found = {queue: (each.min_offset, each.max_offset) for queue, each in bounds[topic].items()}
    assert found == {Q1: (0, 2), Q2: (0, 1)}
    assert all(each.is_hidden for each in bounds[topic].values())
    setup.show_queues(topic, 2)
    bounds = queries.hidden_bounds({topic: {Q1: 0, Q2: 0}})
    assert [bounds[topic][queue].is_hidden for queue in (Q1, Q2)] == [False, True]
    known = queries.recovery_id
    setup.restart()
    setup.show_queues(topic, 3)
    setup.send(topic, b"d", queue_id=1)
    setup.show_queues(topic, 1)
    assert queries.hidden_bounds({topic: {Q1: 2}}, known)[topic][Q1].cut_offset == 2


def test_s5_bounds_tell_who_knows_an_older_recovery_where_queues_were_cut(setup: Setup) -> None:
    topic = setup.topic()
    setup.send(topic, b"a", b"b")
    subscription = Subscription((topic,), None, "g")
    queries = setup.transport.offset_queries()
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


def test_s5_a_pull_gives_nothing_that_was_stored_since_a_recovery_behind_its_plan(
    setup: Setup,
) -> None:
    topic = setup.topic()
    setup.send(topic, b"a", b"b")
    queries = setup.transport.offset_queries()
    queries.bounds(Subscription((topic,), None, "g"))
    options = replace(OPTIONS, recovery_id=queries.recovery_id)
    setup.restart()
    setup.send(topic, b"c", b"d")
    assert pulled(setup.transport, QueueRange(topic, 0, 0, 2), options) == [b"a", b"b"]
    for begin in (1, 2, 3):
        part = QueueRange(topic, 0, begin, 4)
        with pytest.raises(DataLossError, match=r"offsets \[\d, 4\) of queue 0 .* are gone"):
            pulled(setup.transport, part, options)
        rest = pulled(setup.transport, part, replace(options, fail_on_data_loss=False))
        assert rest == [b"b"][begin - 1 :]
        for recovery_id in ("", "none of this store"):
            assert pulled(setup.transport, part, replace(options, recovery_id=recovery_id))


def test_blocks_show_in_the_order_of_their_sends(setup: Setup) -> None:
    topic = setup.topic()
    setup.write(None, *(block(topic, [b"%d" % number]) for number in range(30)))
    assert setup.bodies(topic) == [b"%d" % number for number in range(30)]
    assert setup.bodies(topic, queue_id=1) == []


def test_a_pull_gives_the_range_that_it_is_asked_for(setup: Setup) -> None:
    topic = setup.topic()
    setup.send(topic, *(b"%d" % number for number in range(10)))
    part = QueueRange(topic, 0, 3, 8)
    assert pulled(setup.transport, part, OPTIONS) == [b"3", b"4", b"5", b"6", b"7"]
    offsets = [
        offset
        for piece in setup.transport.pull(part, OPTIONS)
        for offset in RecordBlock.parse(piece.records, piece.sizes).header["queue_offset"].tolist()
    ]
    assert offsets == [3, 4, 5, 6, 7]


def test_messages_that_are_gone_fail_a_pull_or_are_passed_over(setup: Setup) -> None:
    topic = setup.topic()
    setup.send(topic, b"a", b"b")
    part = QueueRange(topic, 0, 0, 5)
    with pytest.raises(DataLossError, match=r"offsets \[2, 5\) of queue 0"):
        pulled(setup.transport, part, OPTIONS)
    options = PullOptions("group", 1 << 20, fail_on_data_loss=False)
    assert pulled(setup.transport, part, options) == [b"a", b"b"]


def test_tags_codes_leave_out_other_messages(setup: Setup) -> None:
    topic = setup.topic()
    for number, tags in enumerate(["A", "B", "A", None]):
        setup.send(topic, b"%d" % number, tags=tags)
    options = PullOptions("group", 1 << 20, fail_on_data_loss=True, tags_codes=(java_hash("A"),))
    assert setup.bodies(topic, options=options) == [b"0", b"2"]


def test_c04_an_expression_leaves_out_other_messages(setup: Setup) -> None:
    topic = setup.topic()
    for number, tags in enumerate(["A", "B", "A", None]):
        setup.send(topic, b"%d" % number, tags=tags)
    options = PullOptions("group", 1 << 20, fail_on_data_loss=True, expression="TAGS = 'A'")
    assert setup.bodies(topic, options=options) == [b"0", b"2"]


def test_c04_what_is_wrong_with_an_expression_is_told(setup: Setup) -> None:
    queries = setup.transport.offset_queries()
    assert queries.expression_fault("TAGS = 'A'") is None
    fault = queries.expression_fault("TAGS = 'A' garbage")
    assert fault is not None
    assert "at character 12" in fault


def test_a_topic_that_is_not_there_is_the_broker_s_error(setup: Setup) -> None:
    with pytest.raises(BrokerError, match="missing"):
        list(setup.transport.pull(QueueRange("missing", 0, 0, 1), OPTIONS))
    with pytest.raises(BrokerError, match="missing"):
        queues(setup.transport, "missing")
    with pytest.raises(BrokerError, match="missing"):
        setup.send("missing", b"a")


def test_search_finds_the_first_message_of_a_time(setup: Setup) -> None:
    topic = setup.topic()
    setup.send(topic, b"a", b"b")
    queries = setup.transport.offset_queries()
    pieces = list(setup.transport.pull(QueueRange(topic, 0, 0, 1), OPTIONS))
    stored_ms = decode_record(bytes(pieces[0].records), 0).record.store_timestamp_ms
    asked = [
        QueueTime(topic, 0, stored_ms),
        QueueTime(topic, 0, stored_ms + 86_400_000),
        QueueTime(topic, 1, 0),
    ]
    assert queries.search(asked) == [0, None, None]
    assert queries.search([]) == []


def test_ranges_are_cut_to_bytes_but_never_to_nothing(setup: Setup) -> None:
    topic = setup.topic()
    setup.send(topic, *[bytes([97]) * 1_000] * 10)
    queries = setup.transport.offset_queries()
    whole = QueueRange(topic, 0, 0, 10)
    assert queries.limit_bytes([whole], 1 << 20) == [10]
    [end] = queries.limit_bytes([whole], 5_000)
    assert 2 <= end <= 5
    assert queries.limit_bytes([whole], 1) == [1]


def test_messages_with_a_key_lie_in_the_ranges_that_are_found(setup: Setup) -> None:
    topic = setup.topic()
    setup.send(topic, *(b"k%d" % number for number in range(20)))
    found = setup.transport.offset_queries().find_keys([QueueRange(topic, 0, 2, 18)], ["k7", "k1"])
    offsets = {offset for part in found for offset in range(part.begin, part.end)}
    assert {(part.topic, part.queue_id) for part in found} == {(topic, 0)}
    assert 7 in offsets
    assert offsets <= set(range(2, 18))


def test_a_pickled_transport_reaches_the_same_broker(setup: Setup) -> None:
    topic = setup.topic(queues=5)
    copy = pickle.loads(pickle.dumps(setup.transport))
    assert queues(copy, topic).count == 5
    assert copy.limits() == setup.transport.limits()
    limits = copy.limits()
    assert min(limits.body_bytes_max, limits.request_bytes_max, limits.segment_bytes) > 0
    assert copy.offset_queries().broker_name() == setup.transport.offset_queries().broker_name()

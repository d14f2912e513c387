"""Special records: delayed, transactional, compressed, of long topics, large."""

from __future__ import annotations

import base64
import shutil
import zlib
from collections.abc import Callable

import pyarrow as pa
import pytest

from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.record.compression import inflate
from tests.interop.rocketmq import Message
from tests.interop.stores import MakeStores, Stores, messages, queue_files, read, rebuilt_queues
from tests.support.store.stores import crash

A0 = QueueKey("TopicA", 0)
LONG = QueueKey("%RETRY%" + "g" * 190, 0)
DELAYED = QueueKey("SCHEDULE_TOPIC_XXXX", 2)
PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC
BODY = b"a body that says the same again and again " * 30
DEFLATE: dict[str, Callable[[bytes], bytes]] = {
    "ZLIB": zlib.compress,
    "LZ4": lambda body: bytes(pa.compress(body, "lz4", asbytes=True)),
    "ZSTD": lambda body: bytes(pa.compress(body, "zstd", asbytes=True)),
}


def text(body: bytes) -> str:
    """Returns a body in the driver's form."""
    return base64.b64encode(body).decode("ascii")


def test_s06_delayed_and_transactional_records_get_rocketmqs_units(stores: Stores) -> None:
    properties = {"DELAY": "3", "TAGS": "Tag", "REAL_TOPIC": "TopicA", "REAL_QID": "0"}
    one = [{"body": text(b"a"), "properties": properties}]
    with stores.rocketmq() as theirs:
        for _ in range(15):
            theirs.ask("put", topic=DELAYED.topic, queueId=2, messages=one)
            for kind in (PREPARED, COMMIT, ROLLBACK, 0):
                theirs.ask("put", topic="TopicT", queueId=0, messages=one, sysFlag=kind)
        assert len(theirs.dump(DELAYED)) == 15
        assert len(theirs.dump(QueueKey("TopicT", 0))) == 30
        theirs.stop()
    rocketmqs = queue_files(stores)
    assert rebuilt_queues(stores) == rocketmqs


def test_s02_long_topics_and_full_properties_are_read_and_rebuilt(new_stores: MakeStores) -> None:
    stores = new_stores(segment_bytes=65_536)
    store = stores.open_ours()
    stores.append_ours(store, LONG, messages(12))
    # The longest possible properties, and a tag with a hash that has no positive counterpart.
    stores.append_ours(store, A0, [Message(b"a", {"p": "v" * 32_764})])
    stores.append_ours(store, A0, [Message(b"a", {"TAGS": "polygenelubricants", "KEYS": "a  b"})])
    store.close()
    stores.check_both_read_the_same()
    ours = queue_files(stores)
    shutil.rmtree(stores.folder / "consumequeue")
    (stores.folder / "abort").touch()
    with stores.rocketmq() as theirs:
        stores.check_rocketmq(theirs)
        stores.put_rocketmq(theirs, LONG, messages(2))
        theirs.stop()
    last = len(stores.written[LONG])
    units = b"".join(ours[path] for path in sorted(ours) if LONG.topic in path.parts)
    found = queue_files(stores)
    again = b"".join(found[path] for path in sorted(found) if LONG.topic in path.parts)
    assert again[: 20 * (last - 2)] == units[: 20 * (last - 2)]
    stores.check_both_read_the_same()


@pytest.mark.parametrize("kind", list(DEFLATE))
def test_s04_what_one_side_deflates_the_other_inflates(stores: Stores, kind: str) -> None:
    queue = QueueKey("TopicZ", 0)
    with stores.rocketmq() as theirs:
        deflated = theirs.ask("deflate", type=kind, body=text(BODY))
        flag = int(deflated["sysFlag"])
        bodies = [base64.b64decode(deflated["body"]), DEFLATE[kind](BODY)]
        for body in bodies:
            one = [{"body": text(body), "properties": {}}]
            theirs.ask("put", topic="TopicZ", queueId=0, messages=one, sysFlag=flag)
        answer = theirs.ask("inflate", dispatched=True, topic="TopicZ", queueId=0)
        assert [base64.b64decode(body) for body in answer["bodies"]] == [BODY, BODY]
        theirs.stop()
    store = stores.open_ours()
    records = read(store, queue)
    assert [record.body for record in records] == bodies
    assert [inflate(record.body, record.sys_flag) for record in records] == [BODY, BODY]
    store.close()


def test_s02_a_body_above_rocketmqs_limit_is_recovered_by_it(new_stores: MakeStores) -> None:
    stores = new_stores(segment_bytes=16 << 20, queue_file_bytes=2_000)
    store = stores.open_ours()
    for size in (4 << 20, (4 << 20) + 1, 7 << 20):
        stores.append_ours(store, A0, [Message(b"x" * size), Message(b"behind it")])
    crash(store)
    stores.check_both_read_the_same()


def test_s11_rocketmq_finds_our_messages_by_time(stores: Stores) -> None:
    store = stores.open_ours()
    for number in range(30):
        stores.append_ours(store, A0, messages(3, f"a{number}"))
    times = [record.store_timestamp_ms for record in read(store, A0)]
    store.close()
    with stores.rocketmq() as theirs:
        for time in sorted(set(times)):
            assert theirs.offset_by_time(A0, time) == times.index(time)
        assert theirs.offset_by_time(A0, times[-1] + 1) == len(times)
        theirs.stop()

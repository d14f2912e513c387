"""Messages by key, over index files that both sides write in turn."""

from __future__ import annotations

import pytest

from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.record import decode_record
from tests.interop.rocketmq import Message, RocketMQStore
from tests.interop.stores import Stores, crash

TOPIC = "TopicA"
A0, A1 = QueueKey(TOPIC, 0), QueueKey(TOPIC, 1)
FOREVER_MS = 1 << 50
COUNT_MAX = 64


def keyed(start: int) -> list[Message]:
    """Ten messages, each with a key of its own and one that all have."""
    made = [Message(b"%d" % n, {"KEYS": f"k{n} shared"}) for n in range(start, start + 8)]
    made.append(Message(b"blanks", {"KEYS": "a  b Köln 😀 shared"}))
    return [*made, Message(b"unique", {"UNIQ_KEY": f"uniq-{start}", "KEYS": "shared"})]


def keys_of(message: Message) -> set[str]:
    """What a message is found by."""
    keys = {*message.properties["KEYS"].split(" "), message.properties.get("UNIQ_KEY", "")}
    return keys - {""}


def check(stores: Stores, found_by: dict[str, list[bytes]]) -> None:
    """Each key finds exactly the messages that have it, up to the limit."""
    written = [message for queue in stores.written.values() for message in queue]
    for key, bodies in found_by.items():
        expected = sorted(one.body for one in written if key in keys_of(one))
        assert len(bodies) == min(len(expected), COUNT_MAX), key
        if len(expected) <= COUNT_MAX:
            assert sorted(bodies) == expected


def all_keys(stores: Stores) -> list[str]:
    written = [message for queue in stores.written.values() for message in queue]
    return sorted({key for message in written for key in keys_of(message)} | {"nobody's"})


def check_ours(stores: Stores, store: MessageStore) -> None:
    """Our store finds every message by each of its keys."""
    store.dispatch()
    found = {
        key: store.messages.by_key(TOPIC, key, 0, FOREVER_MS, COUNT_MAX) for key in all_keys(stores)
    }
    check(stores, {key: [decode_record(v).record.body for v in found[key]] for key in found})


def check_rocketmq(stores: Stores, theirs: RocketMQStore) -> None:
    """And so does RocketMQ."""
    keys = all_keys(stores)
    check(stores, {key: [r["body"] for r in theirs.query(TOPIC, key)] for key in keys})


@pytest.mark.parametrize("crashed", [False, True])
def test_s08_both_sides_find_by_key_what_either_wrote(stores: Stores, crashed: bool) -> None:
    for start in (0, 1000):
        ours = stores.ours()
        ours.open()
        for number in range(4):
            stores.append_ours(ours, A0 if number % 2 else A1, keyed(start + 10 * number))
        check_ours(stores, ours)
        (crash if crashed else MessageStore.close)(ours)
        with stores.rocketmq() as theirs:
            check_rocketmq(stores, theirs)
            stores.put_rocketmq(theirs, A0, keyed(start + 500))
            check_rocketmq(stores, theirs)
            (theirs.kill if crashed else theirs.stop)()
    last = stores.ours()
    last.open()
    check_ours(stores, last)
    last.close()
    assert len(list((stores.folder / "index").iterdir())) == 1

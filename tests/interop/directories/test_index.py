"""Messages by key and by tag, over index files that both sides write in turn."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from rocketpy_broker.store.check.read_only import StoreSizes
from rocketpy_broker.store.check.whole_store import Fault, StoreCheck
from rocketpy_broker.store.index.layout import ENTRY, HEADER, IndexFormat
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.record import decode_record
from tests.interop.remoting.clients import until
from tests.interop.rocketmq import V5, VERSIONS, Message, RocketMQStore
from tests.interop.stores import Stores
from tests.support.store.stores import crash

TOPIC = "TopicA"
A0, A1 = QueueKey(TOPIC, 0), QueueKey(TOPIC, 1)
FOREVER_MS = 1 << 50
COUNT_MAX = 64


def keyed(start: int) -> list[Message]:
    """Returns ten messages, each with a key of its own and a shared one."""
    made = [Message(b"%d" % n, {"KEYS": f"k{n} shared"}) for n in range(start, start + 8)]
    made.append(Message(b"blanks", {"KEYS": "a  b Köln 😀 shared"}))
    return [*made, Message(b"unique", {"UNIQ_KEY": f"uniq-{start}", "KEYS": "shared"})]


def keys_of(message: Message) -> set[str]:
    """Returns all keys that find a message."""
    keys = {*message.properties["KEYS"].split(" "), message.properties.get("UNIQ_KEY", "")}
    return keys - {""}


def faulty(stores: Stores, found_by: dict[str, list[bytes]]) -> dict[str, list[bytes]]:
    """Returns the keys that do not find exactly the messages that have them, up to the limit."""
    written = [message for queue in stores.written.values() for message in queue]
    expected = {key: sorted(one.body for one in written if key in keys_of(one)) for key in found_by}

    def is_right(key: str) -> bool:
        if len(expected[key]) > COUNT_MAX:
            return len(found_by[key]) == COUNT_MAX
        return sorted(found_by[key]) == expected[key]

    return {key: found_by[key] for key in found_by if not is_right(key)}


def all_keys(stores: Stores) -> list[str]:
    written = [message for queue in stores.written.values() for message in queue]
    return sorted({key for message in written for key in keys_of(message)} | {"nobody's"})


def check_ours(stores: Stores, store: MessageStore) -> None:
    """Asserts that our store finds every message by each of its keys."""
    store.dispatch()
    found = {
        key: store.messages.by_key(TOPIC, key, 0, FOREVER_MS, COUNT_MAX) for key in all_keys(stores)
    }
    bodies = {key: [decode_record(v).record.body for v in found[key]] for key in found}
    assert faulty(stores, bodies) == {}


def check_rocketmq(stores: Stores, theirs: RocketMQStore) -> None:
    """Asserts that RocketMQ does, too, once it has read what a crash has left unread."""

    def wrong() -> dict[str, list[bytes]]:
        found = {key: theirs.query(TOPIC, key) for key in all_keys(stores)}
        return faulty(stores, {key: [each["body"] for each in found[key]] for key in found})

    until(lambda: wrong() == {}, wrong)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("crashed", [False, True])
def test_s08_both_sides_find_by_key_what_either_wrote(stores: Stores, crashed: bool) -> None:
    for start in (0, 1000):
        ours = stores.open_ours()
        for number in range(4):
            stores.append_ours(ours, A0 if number % 2 else A1, keyed(start + 10 * number))
        check_ours(stores, ours)
        (crash if crashed else MessageStore.close)(ours)
        with stores.rocketmq() as theirs:
            check_rocketmq(stores, theirs)
            stores.put_rocketmq(theirs, A0, keyed(start + 500))
            check_rocketmq(stores, theirs)
            (theirs.kill if crashed else theirs.stop)()
    last = stores.open_ours()
    check_ours(stores, last)
    last.close()
    assert len(list((stores.folder / "index").iterdir())) == 1


# RocketMQ writes an entry for each tag since 5.4.
TAGS = ["TagA", "Größe 😀", "T#TagA"]


def tagged(start: int) -> list[Message]:
    """Returns messages with a tag, with tag and keys, with a key like a tag, and with neither."""
    return [
        *(Message(b"%d" % n, {"TAGS": TAGS[n % 3]}) for n in range(start, start + 3)),
        Message(b"both", {"TAGS": "TagA", "KEYS": "a b", "UNIQ_KEY": f"u{start}"}),
        Message(b"key alone", {"KEYS": "T#TagA"}),
        Message(b"neither", {}),
    ]


def with_tag(messages: list[Message], tag: str) -> list[bytes]:
    """Returns the bodies of the messages that have the tag."""
    return sorted(one.body for one in messages if one.properties.get("TAGS") == tag)


def ours_with_tag(store: MessageStore, tag: str) -> list[bytes]:
    store.dispatch()
    found = store.messages.by_tag(TOPIC, tag, 0, FOREVER_MS, COUNT_MAX)
    return sorted(decode_record(view).record.body for view in found)


def theirs_with_tag(theirs: RocketMQStore, tag: str) -> list[bytes]:
    """Returns RocketMQ's results; clients have to skip a key that looks like a tag."""
    found = theirs.query_by_tag(TOPIC, tag)
    return sorted(one["body"] for one in found if one["properties"].get("TAGS") == tag)


def until_with_tag(theirs: RocketMQStore, tag: str, bodies: list[bytes]) -> None:
    """Waits until RocketMQ finds exactly these messages by a tag."""
    until(lambda: theirs_with_tag(theirs, tag) == bodies, lambda: theirs_with_tag(theirs, tag))


def faults(stores: Stores) -> list[str]:
    findings = StoreCheck(stores.folder, StoreSizes.of(stores.folder)).run()
    return [one.text for one in findings if isinstance(one, Fault)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("crashed", [False, True])
def test_s08_tags_are_found_after_each_turn_of_a_broker_that_enters_them(
    stores: Stores, crashed: bool
) -> None:
    enters_tags = stores.version == V5
    with stores.rocketmq() as theirs:
        stores.put_rocketmq(theirs, A0, tagged(0))
        for tag in TAGS:
            wanted = with_tag(stores.written[A0], tag) if enters_tags else []
            until_with_tag(theirs, tag, wanted)
        (theirs.kill if crashed else theirs.stop)()
    assert faults(stores) == []
    ours = stores.open_ours()
    stores.append_ours(ours, A0, tagged(100))
    for tag in TAGS:
        assert ours_with_tag(ours, tag) == with_tag(stores.written[A0], tag)
    ours.close()
    assert faults(stores) == []
    before = [*stores.written[A0]]
    with stores.rocketmq() as theirs:
        # A broker that writes no entries for tags still finds the existing ones.
        for tag in TAGS:
            until_with_tag(theirs, tag, with_tag(before, tag))
        stores.put_rocketmq(theirs, A0, tagged(200))
        found = with_tag(stores.written[A0] if enters_tags else before, "TagA")
        until_with_tag(theirs, "TagA", found)
        assert len(theirs.query(TOPIC, "a")) == 3
        (theirs.kill if crashed else theirs.stop)()
    assert faults(stores) == []
    last = stores.open_ours()
    for tag in TAGS:
        assert ours_with_tag(last, tag) == with_tag(stores.written[A0], tag)
    last.close()


def content_of(folder: Path) -> bytes:
    """Returns the header, slots and entries of the one index file."""
    (path,) = (folder / "index").iterdir()
    with path.open("rb") as file:
        count = int(np.frombuffer(file.read(HEADER.itemsize), HEADER)[0]["count"])
        file.seek(0)
        return file.read(IndexFormat().entries_begin + count * ENTRY.itemsize)


def test_s08_the_index_that_we_make_of_the_log_is_rocketmqs_byte_for_byte(stores: Stores) -> None:
    with stores.rocketmq() as theirs:
        for start in (0, 10):
            stores.put_rocketmq(theirs, A0, tagged(start))
            stores.put_rocketmq(theirs, A1, keyed(start))
        theirs.query(TOPIC, "a")
        theirs.stop()
    theirs_content = content_of(stores.folder)
    shutil.rmtree(stores.folder / "index")
    ours = stores.open_ours()
    ours.close()
    assert content_of(stores.folder) == theirs_content

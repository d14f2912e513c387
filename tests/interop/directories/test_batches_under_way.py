"""A store handed to RocketMQ during outstanding batches: it shows each appended message once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest

from rocketpy_broker.services.batches.log import BATCHES_QUEUE, StagedTask
from rocketpy_broker.services.batches.outcome import Outcome
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.index.layout import IndexFormat
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.record import decode_record
from tests.faults.batches.batch_use import ONE_BY_ONE, Desk, expected_of, limited_room
from tests.faults.images import read_bodies, send
from tests.faults.kills.test_f10_killed_recovery import Killed
from tests.interop.remoting.clients import until
from tests.interop.rocketmq import Message, RocketMQStore
from tests.interop.stores import MakeStores, Stores
from tests.support.store.messages import OTHER, QUEUE, flush_log

FOREVER_MS = 1 << 50
# Batch 1 is partly stored, up to its first APPENDED messages; batch 2 is staged.
PARTS = [b"part-%d" % number for number in range(7)]
STAGED = [b"staged-%d" % number for number in range(3)]
NEVER = [b"aborted", b"not named"]
APPENDED = 3


@dataclass
class Shown:
    """The content that the store must show, in order; each message's body is also its key."""

    queues: dict[QueueKey, list[bytes]]

    def add(self, queue: QueueKey, *bodies: bytes) -> None:
        self.queues[queue] += bodies

    def keys(self, topic: str) -> dict[str, list[bytes]]:
        """Returns the bodies that each existing key must find in a topic."""
        (own,) = (bodies for queue, bodies in self.queues.items() if queue.topic == topic)
        every = [*PARTS, *STAGED, *NEVER, *(b for found in self.queues.values() for b in found)]
        return {body.decode(): [body] if body in own else [] for body in every}

    def check_ours(self, desk: Desk) -> None:
        """Asserts that our readers and our index show this content, once, and nothing else."""
        desk.store.dispatch()
        for queue, bodies in self.queues.items():
            assert read_bodies(desk.store, queue) == bodies
            by_key = desk.store.messages.by_key
            for key, expected in self.keys(queue.topic).items():
                found = by_key(queue.topic, key, 0, FOREVER_MS, 64)
                assert [decode_record(one).record.body for one in found] == expected, key

    def check_theirs(self, theirs: RocketMQStore) -> None:
        """Asserts that RocketMQ's readers and index do, too, once it has read what a crash left."""
        for queue, bodies in self.queues.items():
            assert [record["body"] for record in theirs.dump(queue)] == bodies
        until(lambda: self._misled(theirs) == {}, lambda: self._misled(theirs))

    def _misled(self, theirs: RocketMQStore) -> dict[str, list[bytes]]:
        """Returns the keys that do not find in RocketMQ's index exactly what they must."""
        wrong: dict[str, list[bytes]] = {}
        for queue in self.queues:
            for key, expected in self.keys(queue.topic).items():
                found = [record["body"] for record in theirs.query(queue.topic, key)]
                if found != expected:
                    wrong[f"{queue.topic} {key}"] = found
        return wrong


def desk_of(stores: Stores) -> Desk:
    """Returns our store, with an index as large as RocketMQ's, and frames of one record."""
    return Desk(stores.folder, stores.flush, IndexFormat(), frame_bytes=ONE_BY_ONE)


def send_plain(desk: Desk, shown: Shown, word: bytes) -> None:
    """Sends two ordinary messages to each queue."""
    for queue in shown.queues:
        bodies = [b"%b-%b-%d" % (word, queue.topic.encode(), number) for number in range(2)]
        send(desk.store, bodies, queue)
        shown.add(queue, *bodies)
    flush_log(desk.store)


def leave_under_way(stores: Stores, shown: Shown) -> StagedTask:
    """Leaves a store as a kill does, in mid-batch; returns the staged task."""
    desk = desk_of(stores)
    desk.open()
    send_plain(desk, shown, b"first")
    desk.write(0, 1)
    for queue, bodies in expected_of(0).items():
        shown.add(queue, *bodies)
    staged = desk.stage(2, 2, 0, (QUEUE, STAGED))
    desk.stage(1, 3, 0, (QUEUE, NEVER[:1]))
    assert desk.abort(1, 3) == 1
    desk.stage(1, 4, 5, (QUEUE, NEVER[1:]))
    parts = desk.stage(1, 4, 0, (QUEUE, PARTS[:2]), (OTHER, PARTS[2:]))
    with limited_room() as room, suppress(Killed):

        def meanwhile() -> None:
            room.left = None
            send_plain(desk, shown, b"between")
            raise Killed

        # The first record is the decision.
        room.left = 1 + APPENDED
        shown.add(QUEUE, *PARTS[:2])
        shown.add(OTHER, PARTS[2])
        desk.commit_held_up(1, 4, [parts], meanwhile)
    desk.crash()
    return staged


@pytest.mark.parametrize("ends", [RocketMQStore.kill, RocketMQStore.stop])
@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_s10_rocketmq_shows_what_was_appended_of_a_batch_and_we_finish_it(
    new_stores: MakeStores, flush: FlushDiskType, ends: Callable[[RocketMQStore], None]
) -> None:
    stores = new_stores(flush)
    for name in ("config", "commitlog"):
        (stores.folder / name).mkdir(parents=True)
    shown = Shown({QUEUE: [], OTHER: []})
    staged = leave_under_way(stores, shown)
    staging = stores.folder / "rocketpy" / "staging"
    files = {path: path.read_bytes() for path in staging.iterdir()}
    with stores.rocketmq() as theirs:
        shown.check_theirs(theirs)
        for queue in shown.queues:
            theirs.put(queue, [Message(b"theirs", {"KEYS": "theirs", "TAGS": "tag"})])
            shown.add(queue, b"theirs")
        shown.check_theirs(theirs)
        ends(theirs)
    assert {path: path.read_bytes() for path in staging.iterdir()} == files
    topics = {path.name for path in (stores.folder / "consumequeue").iterdir()}
    assert topics == {QUEUE.topic, OTHER.topic, BATCHES_QUEUE.topic}
    desk = desk_of(stores)
    desk.open()
    shown.add(OTHER, *PARTS[3:])
    shown.check_ours(desk)
    assert desk.query(1, 4).outcome is Outcome.COMMITTED
    assert desk.commit(2, 2, staged).outcome is Outcome.COMMITTED
    shown.add(QUEUE, *STAGED)
    shown.check_ours(desk)
    desk.stop()
    with stores.rocketmq() as theirs:
        shown.check_theirs(theirs)
        theirs.stop()

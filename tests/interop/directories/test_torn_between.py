"""A crash of ours with a torn tail: RocketMQ cuts it and continues there, then we return."""

from __future__ import annotations

import os

import pytest

from rocketpy_broker.store.values import QueueKey
from tests.interop.rocketmq import V4, V5
from tests.interop.stores import MakeStores, block_of, messages
from tests.support.store.stores import crash

A0 = QueueKey("TopicA", 0)


@pytest.mark.parametrize(
    ("version", "left"),
    [
        (V5, "stopped"),
        (V5, "killed"),
        (V5, "killed, with our process id"),
        (V4, "stopped"),
        # 4.9 leaves the whole of our text.
        (V4, "killed"),
    ],
)
def test_f14_what_rocketmq_wrote_in_place_of_our_torn_tail_is_kept(
    new_stores: MakeStores, left: str
) -> None:
    stores = new_stores(segment_bytes=65_536, queue_file_bytes=2_000)
    store = stores.open_ours()
    stores.append_ours(store, A0, messages(10))
    end = store.append(A0, block_of("TopicA", messages(6, "lost"))).physical_offset
    crash(store)
    # A power cut took the pages of the last block, but not the pages of its checksums.
    log = stores.folder / "commitlog" / "0".zfill(20)
    data = log.read_bytes()
    log.write_bytes(data[:end] + bytes(len(data) - end))
    with stores.rocketmq() as theirs:
        stores.check_rocketmq(theirs)
        stores.put_rocketmq(theirs, A0, messages(8, "in its place"))
        (theirs.stop if left == "stopped" else theirs.kill)()
    if left.endswith("process id"):
        # In containers both are often process 1.
        (stores.folder / "abort").write_text(str(os.getpid()), encoding="ascii")
    again = stores.ours()
    assert again.open().abnormal == (left != "stopped")
    stores.check_ours(again)
    again.close()
    assert not stores.check_both_read_the_same().abnormal

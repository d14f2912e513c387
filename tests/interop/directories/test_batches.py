"""Staged and committed batches, as RocketMQ's own code sees them."""

from __future__ import annotations

import shutil
from pathlib import Path

from rocketpy_broker.services.batches.log import BATCHES_QUEUE
from rocketpy_broker.store.config import FlushDiskType
from tests.faults.batches.batch_use import Desk, expected_of
from tests.interop.stores import READ_WHOLE_LOG, Stores, as_rocketmq_sees, queue_files, read
from tests.support.store.messages import QUEUE


def test_s08_rocketmq_reads_committed_messages_once_and_no_staged_one(stores: Stores) -> None:
    folder: Path = stores.folder
    for name in ("config", "commitlog"):
        (folder / name).mkdir(parents=True)
    desk = Desk(folder, FlushDiskType.ASYNC_FLUSH)
    desk.open()
    for batch_id in range(6):
        desk.stage(batch_id, 99, 5, (QUEUE, [b"never"]))
        desk.write(batch_id, batch_id + 1)
    desk.stop()
    # Our index is small, and RocketMQ's is not.
    shutil.rmtree(folder / "index")
    ours = queue_files(stores)
    shutil.rmtree(folder / "consumequeue")
    (folder / "checkpoint").unlink()
    (folder / "abort").touch()
    with stores.rocketmq(**READ_WHOLE_LOG) as theirs:
        dumps = {queue: theirs.dump(queue) for queue in (*expected_of(0), BATCHES_QUEUE)}
        theirs.stop()
    again = queue_files(stores)
    assert {path: again[path] for path in ours} == ours
    store = stores.open_ours()
    for queue, dump in dumps.items():
        assert [as_rocketmq_sees(record) for record in read(store, queue)] == dump
    for queue in expected_of(0):
        wanted = [body for batch_id in range(6) for body in expected_of(batch_id)[queue]]
        assert [record.body for record in read(store, queue)] == wanted
    store.close()

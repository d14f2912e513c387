"""Copied, restored and shared checkpoints: they never double the output."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker
from tests.spark.conftest import Topic
from tests.support.spark.copies import check_copied, driver, finish, numbered, send_numbered
from tests.support.spark.copying_driver import BATCH_ROWS, Copying
from tests.support.spark.holding_proxy import COMMIT_BATCH, HoldingProxy, Moment

pytestmark = pytest.mark.slow
MESSAGES = 4 * BATCH_ROWS


@pytest.mark.torture
def test_s7_an_older_checkpoint_put_back_is_refused_and_writes_nothing(
    new_topic: Callable[..., Topic], tmp_path: Path, rocketpy_broker: LocalBroker
) -> None:
    source, target = new_topic(), new_topic()
    sent = send_numbered(source, MESSAGES)
    with HoldingProxy(rocketpy_broker.endpoint) as proxy:
        copying = Copying(proxy.endpoint, source.name, target.name, str(tmp_path / "checkpoint"))
        hold = proxy.hold(COMMIT_BATCH, Moment.ASKED, skip=1)
        with driver(copying):
            hold.wait_reached()
            shutil.copytree(copying.checkpoint, tmp_path / "older")
        hold.release()
        finish(source.spark, copying)
        check_copied(source, target, sent)
        older = replace(copying, checkpoint=str(tmp_path / "older"), available_now=True)
        with driver(older) as running, pytest.raises(AssertionError, match="ROCKETPY_COMMIT"):
            running.wait()
    check_copied(source, target, sent)


def test_s7_two_drivers_with_one_checkpoint_write_once(
    new_topic: Callable[..., Topic], tmp_path: Path, rocketpy_broker: LocalBroker
) -> None:
    """Holds the first driver before its commit while the tests' driver copies everything."""
    source, target = new_topic(), new_topic()
    sent = send_numbered(source, MESSAGES)
    with HoldingProxy(rocketpy_broker.endpoint) as proxy:
        held = Copying(proxy.endpoint, source.name, target.name, str(tmp_path / "checkpoint"))
        free = replace(held, endpoint=rocketpy_broker.endpoint)
        hold = proxy.hold(COMMIT_BATCH, Moment.ASKED, skip=1)
        with driver(held):
            hold.wait_reached()
            finish(source.spark, free)
            check_copied(source, target, sent)
            hold.release()
            more = numbered(0, MESSAGES // 2 + BATCH_ROWS)[MESSAGES // 2 :]
            source.send(*more)
            finish(source.spark, free)
    check_copied(source, target, sorted(sent + more))

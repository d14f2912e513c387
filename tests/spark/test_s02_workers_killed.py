"""Row S2: workers are killed, first attempts fail, slow ones run twice; the copy is exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker
from tests.spark.conftest import Topic
from tests.spark.copying import check_copied, driver, send_numbered
from tests.spark.copying_driver import BATCH_ROWS, Copying
from tests.spark.holding_proxy import APPEND, PULL, HoldingProxy, Moment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
MESSAGES = 4 * BATCH_ROWS


@pytest.fixture
def proxy(rocketpy_broker: LocalBroker) -> Callable[[], HoldingProxy]:
    return lambda: HoldingProxy(rocketpy_broker.endpoint)


@pytest.mark.parametrize("method", [PULL, APPEND])
def test_s2_a_worker_killed_while_reading_or_writing_is_replaced(
    method: str,
    proxy: Callable[[], HoldingProxy],
    new_topic: Callable[..., Topic],
    tmp_path: Path,
) -> None:
    source, target = new_topic(), new_topic()
    sent = send_numbered(source, MESSAGES)
    with proxy() as listening:
        hold = listening.hold(method, Moment.ANSWERED, skip=1)
        copying = Copying(
            listening.endpoint,
            source.name,
            target.name,
            str(tmp_path / "checkpoint"),
            master="local[2,4]",
            available_now=True,
        )
        with driver(copying) as running:
            hold.wait_reached()
            workers = running.python_workers()
            assert workers
            for worker in workers:
                worker.kill()
            hold.release()
            running.wait()
    check_copied(source, target, sent)


def test_s2_what_failed_first_attempts_have_prepared_never_shows(
    new_topic: Callable[..., Topic], tmp_path: Path, rocketpy_broker: LocalBroker
) -> None:
    source, target = new_topic(), new_topic()
    sent = send_numbered(source, MESSAGES)
    copying = Copying(
        rocketpy_broker.endpoint,
        source.name,
        target.name,
        str(tmp_path / "checkpoint"),
        master="local[2,4]",
        available_now=True,
        fails_first=True,
    )
    with driver(copying) as running:
        running.wait()
    check_copied(source, target, sent)


def test_s2_of_an_attempt_and_its_speculative_copy_one_counts(
    proxy: Callable[[], HoldingProxy], new_topic: Callable[..., Topic], tmp_path: Path
) -> None:
    """The first answer to an append is held, so its task looks slow, and Spark runs it again."""
    source, target = new_topic(), new_topic()
    sent = send_numbered(source, MESSAGES)
    with proxy() as listening:
        hold = listening.hold(APPEND, Moment.ANSWERED)
        copying = Copying(
            listening.endpoint,
            source.name,
            target.name,
            str(tmp_path / "checkpoint"),
            master="local-cluster[2,2,1024]",
            available_now=True,
            speculation=True,
        )
        with driver(replace(copying)) as running:
            hold.wait_reached()
            running.wait()
            hold.release()
    check_copied(source, target, sent)

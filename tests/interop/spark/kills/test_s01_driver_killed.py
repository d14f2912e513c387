"""A driver on a live cluster, killed while it copies, and restarted."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.interop.cluster.cluster import A, B
from tests.interop.cluster.processes import DIE_WITH_PARENT
from tests.interop.spark.queries import OfCluster, places
from tests.support.spark.copies import kill_with_children
from tests.support.time_limits import WAIT_SECONDS_MAX

KILLS, MESSAGES = 2, 150
TOP = Path(__file__).parents[4]


def test_s01_a_driver_that_is_killed_loses_nothing_and_its_copies_have_their_keys(
    of_cluster: OfCluster,
) -> None:
    of_cluster.send_to_all("row", MESSAGES)
    target = of_cluster.beside("copy", A, B)
    arguments = of_cluster.cluster.addresses, of_cluster.topic, target.topic
    program = "tests.interop.spark.kills.copying_program"
    command = [sys.executable, "-m", program, *arguments, str(of_cluster.folder / "checkpoint")]
    for _ in range(KILLS):
        driver = subprocess.Popen([*DIE_WITH_PARENT, *command], cwd=TOP)
        _until_more(target, driver)
        # Its JVM, too: the next driver has the same checkpoint.
        kill_with_children(driver)
    subprocess.run(command, cwd=TOP, check=True, timeout=WAIT_SECONDS_MAX)
    rows = target.read_written().select("body", "msgId").collect()
    bodies = {bytes(row.body) for row in rows}
    assert bodies == {place.body for place in of_cluster.sent}
    texts = len(of_cluster.sent) // len({place.body for place in of_cluster.sent})
    assert len({row.msgId for row in rows}) == len(bodies) * texts, "copies have other keys"


def _until_more(target: OfCluster, driver: subprocess.Popen[bytes]) -> None:
    """Waits until the driver has stored something."""
    before, end = len(places(target.read())), time.monotonic() + WAIT_SECONDS_MAX
    while len(places(target.read())) == before:
        assert driver.poll() is None, "the driver has ended"
        assert time.monotonic() < end

"""H04: a slave becomes the master, and nothing that it had is lost."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.client.errors import RefusedError

SECONDS_MAX = 60


def test_h04_a_promoted_slave_serves_as_master_and_delivers_what_waits(tmp_path: Path) -> None:
    with (
        LocalBroker(tmp_path / "a", ha_port=0, remoting_port=0) as master,
        LocalBroker(
            tmp_path / "b", broker_role="SLAVE", master=master.remoting_endpoint, remoting_port=0
        ) as slave,
    ):
        pass

"""Program of a LocalBroker's process: its imports, and its configuration."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rocketpy_broker import LocalBroker
from rocketpy_broker.broker_program import _local_config
from rocketpy_broker.config import BrokerConfig

IMPORTS = """
import sys
import rocketpy_broker.broker
import rocketpy_broker.broker_program
print(sorted({"typer", "rich", "click", "pydantic", "pandas"} & sys.modules.keys()))
"""


def test_the_program_imports_nothing_of_the_command_line() -> None:
    command = [sys.executable, "-W", "error", "-c", IMPORTS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_settings_without_a_value_have_the_broker_s_defaults(tmp_path: Path) -> None:
    given = LocalBroker(tmp_path)._settings()
    for name in ("data", "temporary"):
        del given[name]
    config, default = _local_config(given, tmp_path), BrokerConfig(tmp_path)
    assert config.delay_levels == default.delay_levels
    assert config.flush_disk_type is default.flush_disk_type
    assert config.clean_policy.warning_level_ratio == 1.0
    assert config.flush_times.flush_interval_ms == default.flush_times.flush_interval_ms

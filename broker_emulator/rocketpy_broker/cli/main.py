"""The `rocketpy` command: its entry point, which also works where the command's extra is missing.

Holds no state.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, or say what to install."""
    try:
        from rocketpy_broker.cli.commands import app
    except ModuleNotFoundError as error:
        sys.exit(
            f"rocketpy: the module {error.name!r} is missing; "
            "install the broker with: pip install 'pyspark-rocketpy[broker]'"
        )
    app()

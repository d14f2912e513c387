"""A program, `python -m tests.faults.simulation SEED`: runs seeds, logs and judges them."""

from __future__ import annotations

import sys

from tests.faults.histories.history import judge
from tests.faults.simulation.run import simulate


def main(words: list[str]) -> int:
    """Runs and judges the seeds; returns 1 if one has a fault."""
    found = False
    for word in words:
        simulation = simulate(int(word))
        sys.stdout.write("\n".join([*simulation.machine.trace, ""]))
        for fault in judge(simulation.history):
            found = True
            sys.stdout.write(f"{fault.kind}: {fault.sentence}\n")
    return int(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A program, `python -m tests.faults.simulation.pair SEED`: runs seeds, logs and judges them."""

from __future__ import annotations

import logging
import sys
import traceback

from tests.faults.simulation.pair.run import PairRunError, simulate


def main(words: list[str]) -> int:
    """Runs and judges the seeds, each a number or a range as 0-99; returns 1 for a fault."""
    found = False
    logging.getLogger("rocketpy_broker").setLevel(logging.CRITICAL + 1)
    for word in words:
        first, _, last = word.partition("-")
        for seed in range(int(first), int(last or first) + 1):
            try:
                simulation = simulate(seed)
            except PairRunError as error:
                traceback.print_exception(error.__cause__)
                simulation = error.simulation
            if not last:
                sys.stdout.write("\n".join([*simulation.sides.trace, ""]))
            for fault in simulation.faults:
                found = True
                sys.stdout.write(f"seed {seed}: {fault}\n")
            sys.stdout.flush()
    return int(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

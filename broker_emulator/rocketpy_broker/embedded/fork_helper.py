"""The program that makes the calls of a forked process; see `forked`.

It reads a LocalBroker and then calls from its input, and writes an answer for each to its output.
Holds no state.
"""

from __future__ import annotations

import os
import pickle
import sys
from typing import BinaryIO

from rocketpy_broker.embedded.process import LocalBrokerError


def main() -> None:
    """Answers calls until the input ends."""
    # What a library prints is no answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(sys.stdin.buffer, answers)


def serve(calls: BinaryIO, answers: BinaryIO) -> None:
    """Answers each call on the broker that comes first."""
    try:
        broker = pickle.load(calls)  # noqa: S301 (from the process that has started this one)
        while True:
            name, args, options = pickle.load(calls)  # noqa: S301 (as above)
            answer: tuple[object, Exception | None]
            try:
                answer = getattr(broker, name)(*args, **options), None
            except (LocalBrokerError, TypeError, ValueError) as error:
                answer = None, error
            pickle.dump(answer, answers)
            answers.flush()
    except EOFError:
        # The process that has asked needs no more answers.
        return


if __name__ == "__main__":
    main()

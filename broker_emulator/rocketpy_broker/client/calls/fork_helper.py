"""Helper program that makes the calls of a forked process.

It reads a pickled client and then calls from its input. It writes one answer for each call to
its output. `fork_calls` starts it.
"""

from __future__ import annotations

import os
import pickle
import sys
from typing import BinaryIO

from rocketpy_broker.errors import BrokerError


def main() -> None:
    """Answers calls until the input ends."""
    # Output of libraries goes to standard error, so that it is not read as an answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(sys.stdin.buffer, answers)


def serve(calls: BinaryIO, answers: BinaryIO) -> None:
    """Reads a broker, then answers calls of its methods until the input ends."""
    try:
        broker = pickle.load(calls)  # noqa: S301 (from the process that has started this one)
        while True:
            name, args, options = pickle.load(calls)  # noqa: S301 (as above)
            answer: tuple[object, Exception | None]
            try:
                answer = getattr(broker, name)(*args, **options), None
            except (BrokerError, TypeError, ValueError) as error:
                answer = None, error
            pickle.dump(answer, answers)
            answers.flush()
    except EOFError:
        # The calling process has ended.
        return


if __name__ == "__main__":
    main()

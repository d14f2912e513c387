"""Helper program that makes the calls of a forked process.

It reads a pickled client and then calls from its input. It writes one answer for each call to
its output. `fork_calls` starts it.
"""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any, BinaryIO

from rocketpy_broker.client.errors import NotPassedError
from rocketpy_broker.errors import BrokerError


def main() -> None:
    """Answers calls until the input ends."""
    # Output of libraries goes to standard error, so that it is not read as an answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(sys.stdin.buffer, answers)


def serve(calls: BinaryIO, answers: BinaryIO) -> None:
    """Reads a broker, then answers calls of its methods until the input ends."""
    # The input is from the process that has started this one.
    try:
        broker = pickle.loads(pickle.load(calls))  # noqa: S301
        while True:
            pickle.dump(_answer(broker, pickle.load(calls)), answers)  # noqa: S301
            answers.flush()
    except EOFError:
        # The calling process has ended.
        return


def _answer(broker: object, data: bytes) -> tuple[object, Exception | None]:
    """Returns the result of a call, or its error."""
    try:
        name, args, options = _loaded(data)
        return getattr(broker, name)(*args, **options), None
    except (BrokerError, TypeError, ValueError) as error:
        return None, error


def _loaded(data: bytes) -> Any:
    """Returns a pickled value. Raises NotPassedError for unknown classes."""
    try:
        return pickle.loads(data)  # noqa: S301 (as above)
    except (AttributeError, ImportError) as error:
        raise NotPassedError(error) from error


if __name__ == "__main__":
    main()

"""Types that several threads decode to at once."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from rocketpy_proto.struct_types import prepared

# Threads switch as often as they can, also within msgspec's inspection of a type.
PROGRAM = """
import sys
import threading
import typing
import msgspec
from rocketpy_proto.struct_types import prepared

given = []
sys.setswitchinterval(1e-6)
for number in range(200):
    fields = [(f"f{each}", "typing.Optional[dict[str, list[int]]]", None) for each in range(20)]
    kind = msgspec.defstruct(f"S{number}", fields, module=__name__)
    start = threading.Barrier(4)

    def decode():
        start.wait()
        given.append(msgspec.convert({"f3": {"a": [1]}}, prepared(kind)).f3)

    threads = [threading.Thread(target=decode) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
assert given == [{"a": [1]}] * 800
"""


def test_n12_threads_that_first_decode_to_a_type_together_do_not_crash() -> None:
    """Asserts the end of a process; lists that were asked for together ended a broker.

    msgspec 0.22 ends with a segmentation fault without `prepared`.
    """
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("kind", "value"),
    [(int, 1), (dict[str, int], {"a": 1}), (object, [1]), (float | None, 1.5), (float, 1.5)],
)
def test_any_type_can_be_prepared(kind: type[object], value: object) -> None:
    assert prepared(kind) is kind
    assert msgspec.json.decode(msgspec.json.encode(value), type=prepared(kind)) == value

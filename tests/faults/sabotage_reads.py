"""Known faults of reading messages that nobody expects, in the form of `sabotage`."""

from __future__ import annotations

from tests.faults.sabotage import CODEC, Sabotage

IN_POISON = "tests/unit/connector/source/test_poison.py::test_s11_"
IN_CODEC = "tests/unit/record/test_compression.py::test_s11_"

READING = (
    Sabotage(
        "a body that cannot be inflated stops its reader",
        CODEC + "compression.py",
        "        return body, str(error)\n",
        "        raise ValueError(str(error)) from error\n",
        (IN_CODEC + "what_is_wrong_with_a_body_is_told_without_the_body",),
    ),
    Sabotage(
        "what bodies inflate to together has no bound",
        CODEC + "compression.py",
        "        if found and together_bytes + len(one[0]) > INFLATED_TOGETHER_BYTES_MAX:\n",
        "        if found and together_bytes < 0:\n",
        (IN_POISON + "bodies_that_inflate_to_much_come_in_batches_of_bounded_bytes",),
    ),
    Sabotage(
        "a time that no column holds wraps to another",
        CODEC + "block/columns.py",
        "        valid = ~outside if outside.any() else None\n",
        "        valid = ~outside if len(outside) == 0 else None\n",
        (IN_POISON + "a_time_that_no_column_holds_is_null[9223372036854775807-None]",),
    ),
)

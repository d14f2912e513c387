"""The message filter of a task."""

from __future__ import annotations

import numpy as np
import pytest

from pyspark_rocketpy.errors import OptionError
from pyspark_rocketpy.options.values import SourceOptions
from pyspark_rocketpy.source.message_filter import MessageFilter
from rocketpy_proto.record import RecordBlock, java_hash
from tests.support.blocks import wire_block

LEAST = {"endpoints": "h:1", "topic": "T"}


def block_of(**columns: list[str]) -> RecordBlock:
    """Returns records with these properties; an empty text stands for none."""
    count = len(next(iter(columns.values())))
    blocks = [
        wire_block(
            "T",
            [b"%d" % index],
            properties={name: [values[index]] for name, values in columns.items() if values[index]},
        )
        for index in range(count)
    ]
    sizes = np.frombuffer(b"".join(block.record_sizes for block in blocks), ">i4")
    return RecordBlock.parse(b"".join(block.records for block in blocks), sizes.astype(np.int32))


def bodies(block: RecordBlock) -> str:
    """Returns the bodies, each one digit."""
    return bytes(block.data[block.body_start]).decode()


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("TagA", ("TagA",)),
        (" TagA||TagB  || TagA ", ("TagA", "TagB")),
        ("*", None),
        (" * ", None),
        ("a|b", ("a|b",)),
    ],
)
def test_c03_a_tag_expression_is_read_as_rocketmq_does(
    text: str, tags: tuple[str, ...] | None
) -> None:
    assert SourceOptions.parse({**LEAST, "filter": text}).tags == tags


@pytest.mark.parametrize("text", ["TagA ||", "|| TagA", "TagA || || TagB", "TagA || *", "||", " "])
def test_c03_a_broken_tag_expression_names_option_value_and_form(text: str) -> None:
    with pytest.raises(OptionError, match=r"option filter is .*accepted: TagA \|\| TagB, or \*"):
        SourceOptions.parse({**LEAST, "filter": text})


@pytest.mark.parametrize("text", ["a,,b", "a, b c", "a,a", ""])
def test_broken_keys_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="option keys is"):
        SourceOptions.parse({**LEAST, "keys": text})


def test_c03_tags_of_one_hash_are_told_apart() -> None:
    assert java_hash("Aa") == java_hash("BB")
    block = block_of(TAGS=["Aa", "BB", "", "Aa"])
    assert bodies(MessageFilter(tags=("Aa",)).select(block)) == "03"
    assert bodies(MessageFilter(tags=("BB", "C")).select(block)) == "1"
    assert MessageFilter(tags=("Aa", "BB")).tags_codes == (java_hash("Aa"),)


def test_c03_without_tags_the_broker_is_asked_for_all() -> None:
    assert MessageFilter().tags_codes == ()


def test_a_key_is_one_of_the_texts_between_blanks() -> None:
    block = block_of(KEYS=["a b", "ab", "", " b", "c"])
    assert bodies(MessageFilter(keys=("b",)).select(block)) == "03"
    assert bodies(MessageFilter(keys=("c", "ab")).select(block)) == "14"
    assert bodies(MessageFilter(keys=("a b",)).select(block)) == ""


def test_tags_and_keys_are_both_to_fit() -> None:
    block = block_of(TAGS=["x", "x", "y"], KEYS=["1", "2", "1"])
    assert bodies(MessageFilter(("x",), ("1",)).select(block)) == "0"

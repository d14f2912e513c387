"""The handle that recalls a message, in RocketMQ's form."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy_proto.model.recall_handle import MalformedHandleError, RecallHandle

NAMES = st.text(st.characters(exclude_characters=" ", exclude_categories=["Cs"]), min_size=1)


@pytest.mark.parametrize(
    ("deliver_ms", "named_ms"), [(5_000, 4_001), (5_001, 5_001), (5_400, 5_001), (6_000, 5_001)]
)
def test_the_time_lies_in_the_second_by_which_rocketmq_counts(
    deliver_ms: int, named_ms: int
) -> None:
    handle = RecallHandle.of_message("T", "broker-a", deliver_ms, "K")
    text = base64.urlsafe_b64decode(handle.encode()).decode()
    assert text == f"v1 T broker-a {named_ms} K"


@given(NAMES, NAMES, st.integers(0, 10**15 - 1), NAMES)
def test_what_was_encoded_is_decoded(topic: str, broker: str, time_ms: int, key: str) -> None:
    handle = RecallHandle(topic, broker, time_ms, key)
    assert RecallHandle.decode(handle.encode()) == handle
    assert RecallHandle.decode(handle.encode().rstrip("=")) == handle


@given(st.text(max_size=50))
def test_any_other_text_is_declared(text: str) -> None:
    try:
        RecallHandle.decode(text)
    except MalformedHandleError:
        return

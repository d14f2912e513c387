"""Relaxed JSON as fastjson reads it.

Text that is cut or garbled is an error, never a shorter value.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy_broker.services.config_files import relaxed_json
from tests.broker.config_files import rocketmq_files

TOLERATED = [
    ("{0:10,1:20\n\t}", {"0": 10, "1": 20}),
    ("{-1:1}", {"-1": 1}),
    ('{"0":"10"}', {"0": "10"}),
    ('{"a":{0:{"b":1},1:[{2:3}]}}', {"a": {"0": {"b": 1}, "1": [{"2": 3}]}}),
    ('{"a":1,}', {"a": 1}),
    ('{"a":[1,2,],}', {"a": [1, 2]}),
    ("{'a':'b'}", {"a": "b"}),
    (r"""{'it\'s "so"\n':1}""", {'it\'s "so"\n': 1}),
    (r'{1:"\u00e9\"\\\/\ud83d\ude00"}', {"1": 'é"\\/😀'}),
    ('{1:"é😀{0:1,}\'"}', {"1": "é😀{0:1,}'"}),
    (" \t\r\n\f\b{ \n1\t:\r1 , }\n ", {"1": 1}),
    ("{1:9223372036854775807,2:-9223372036854775808}", {"1": 2**63 - 1, "2": -(2**63)}),
    ("{1:1.5e3,2:true,3:false,4:null}", {"1": 1500.0, "2": True, "3": False, "4": None}),
    ("{1:{},2:[],3:''}", {"1": {}, "2": [], "3": ""}),
]


@pytest.mark.parametrize(("text", "value"), TOLERATED)
def test_b01_what_fastjson_tolerates_is_read(text: str, value: object) -> None:
    assert relaxed_json.loads(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{1:2} x",
        "x {1:2}",
        "{1:2}}",
        "{1:2}{1:2}",
        "{1 2}",
        "{1:2 3:4}",
        "{1:}",
        "{,}",
        "{1:2,,}",
        "{1:tru}",
        "{1:2x}",
        "{1:--2}",
        "{1:007}",
        "{1:NaN}",
        '{"a":NaN}',
        '{"a":-Infinity}',
        "{x:1}",
        "{1:2\0}",
        "\0" * 4096,
        '{1:"\\q"}',
        "[" * 100_000,
        "PK\x03\x04",
    ],
)
def test_b03_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        relaxed_json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        rocketmq_files.TOPICS,
        rocketmq_files.CONSUMER_OFFSETS,
        rocketmq_files.DELAY_OFFSETS,
        rocketmq_files.GROUPS,
    ],
    ids=["topics", "consumer offsets", "delay offsets", "groups"],
)
def test_b03_a_file_cut_at_any_character_is_refused(text: str) -> None:
    assert relaxed_json.loads(text)
    for end in range(len(text)):
        with pytest.raises(ValueError):
            relaxed_json.loads(text[:end])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False).map(abs),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers().map(str), inner),
    max_leaves=20,
).filter(lambda value: "Infinity" not in json.dumps(value))


@given(VALUES, st.booleans())
def test_the_grammar_agrees_with_the_strict_reader(value: object, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert relaxed_json._loads_relaxed(text) == value

"""JSON in fastjson's notation: read in linear time; other text is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy_proto.remoting import RemotingFormatError
from rocketpy_proto.remoting.json_text import DEPTH_MAX, read_json

KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["{0:1}", ",1:", '"', "\\", '\\"', '{"a":1}:', "$ref"]
)
LEAVES = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | KEYS
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(KEYS.filter(lambda key: key != "$ref"), inner, max_size=4)
    ),
    max_leaves=20,
)
MEGABYTE = 1 << 20


def read(text: str | bytes) -> object:
    return read_json(text if isinstance(text, bytes) else text.encode(), "body")


@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_standard_json_is_read_as_it_is(
    value: object, ascii_only: bool, indent: int | None
) -> None:
    assert read(json.dumps(value, ensure_ascii=ascii_only, indent=indent)) == value


def as_fastjson(value: object) -> str:
    """Returns the text, with unquoted keys if they are numbers or objects."""
    if isinstance(value, dict):
        members = (
            f"{key if key.isdecimal() or key.startswith('{') else json.dumps(key)}: "
            f"{as_fastjson(item)}"
            for key, item in value.items()
        )
        return f"{{ {' , '.join(members)} }}"
    if isinstance(value, list):
        return f"[{','.join(as_fastjson(item) for item in value)}]"
    return json.dumps(value, ensure_ascii=False)


ODD_KEYS = (
    st.integers(0, 1 << 70).map(str)
    | KEYS.filter(lambda key: not key.startswith("{") and key != "$ref")
    | st.dictionaries(KEYS.filter(lambda key: key != "$ref"), KEYS, max_size=3).map(json.dumps)
)
ODD_VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD_KEYS, inner, max_size=4),
    max_leaves=20,
)


@given(ODD_VALUES)
def test_keys_that_are_numbers_or_objects_become_strings(value: object) -> None:
    assert read(as_fastjson(value)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{0:10,1:20\n\t}", {"0": 10, "1": 20}),
        ("{-1:1}", {"-1": 1}),
        ('{"0":"10"}', {"0": "10"}),
        ('{"a":{0:{"b":1},1:[{2:3}]}}', {"a": {"0": {"b": 1}, "1": [{"2": 3}]}}),
        ('{"a":1,}', {"a": 1}),
        ('{"a":[1,2,],}', {"a": [1, 2]}),
        ("{'a':'b'}", {"a": "b"}),
        (r"""{'it\'s "so"\n':1}""", {'it\'s "so"\n': 1}),
        ("{'{0:1,}':'[,]',}", {"{0:1,}": "[,]"}),
        (r'{1:"\u00e9\"\\\/\ud83d\ude00"}', {"1": 'é"\\/😀'}),
        ('{1:"é😀{0:1,}\'"}', {"1": "é😀{0:1,}'"}),
        (" \t\r\n\f\b{ \n1\t:\r1 , }\n ", {"1": 1}),
        ("{1:9223372036854775807,2:-9223372036854775808}", {"1": 2**63 - 1, "2": -(2**63)}),
        ("{1:1.5e3,2:true,3:false,4:null}", {"1": 1500.0, "2": True, "3": False, "4": None}),
        ("{1:{},2:[],3:''}", {"1": {}, "2": [], "3": ""}),
    ],
)
def test_b01_what_fastjson_tolerates_is_read(text: str, value: object) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{1:2} x",
        "x {1:2}",
        "{1:2}}",
        "{1:2}{1:2}",
        "{1:2 3:4}",
        "{1:}",
        "{,}",
        "[,]",
        "{1:2,,}",
        "{1:tru}",
        "{1:2x}",
        "{1:--2}",
        "{1:007}",
        '{"a":NaN}',
        '{"a":-Infinity}',
        "{1:2\0}",
        "\0" * 4096,
        '{1:"\\q"}',
        "PK\x03\x04",
        "{0:1",
        "{0 1}",
        "{a:1}",
        "{'a:1}",
        "{\"a':1}",
        "{1:'",
        "{'a':'b'c'}",
        "[0:1]",
        "{1.5:1}",
        "{{}}",
        '{{"a":1}}',
        "{[]:1}",
        '{"a:{0:1}}',
        '{"x,0:1}',
        '{\\"a":1}',
        "{0:NaN}",
        "{0:Infinity}",
        '{"a":1} {"b":2}',
        '{"a":1},',
        '"\\ud83d"',
        '"\x01"',
        "\ufeff{}",
        '[{"$ref":"$[0]"}]',
        '{0:{"$ref" : "$"}}',
        "9" * 5000,
        "1e999999",
        "[}",
    ],
)
def test_whatever_else_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(RemotingFormatError, match="body: "):
        read(text)


@pytest.mark.parametrize("text", [b"\xff", b'"\xed\xa0\x80"', b"\0", b"{0:\xff}"])
def test_bytes_that_are_no_text_are_refused(text: bytes) -> None:
    with pytest.raises(RemotingFormatError):
        read(text)


def test_depth_is_bounded_before_anything_recurses() -> None:
    for begin, end in (("[", "]"), ('{"a":', "}"), ("{0:", "}")):
        assert read(begin * DEPTH_MAX + "1" + end * DEPTH_MAX)
        for depth in (DEPTH_MAX + 1, MEGABYTE):
            with pytest.raises(RemotingFormatError, match="nested too deeply, limit 64"):
                read(begin * depth + "1" + end * depth)


def test_brackets_in_strings_are_no_depth() -> None:
    value = ["{[" * MEGABYTE, '"' * 100 + "{" * 100]
    assert read(json.dumps(value)) == value


# Without linear time each of these takes hours and fails by the time-out of the test.
@pytest.mark.parametrize(
    "text",
    [
        "{" * MEGABYTE,
        "{}" * MEGABYTE,
        "{0" * MEGABYTE,
        "{" + " " * MEGABYTE + "0" * MEGABYTE,
        "{0" + " " * MEGABYTE,
        "{}" + " " * MEGABYTE + "x",
        "{" + '"",' * MEGABYTE,
        '"' * MEGABYTE + "x",
        '"' + '\\"' * MEGABYTE,
        '{"' + "\\\\" * MEGABYTE,
        "[{}" + ",{}" * MEGABYTE + "}",
        "[[" + "'\\" * MEGABYTE,
        "'" + "\\'" * MEGABYTE + "\\",
        '"' + "[" * 100 + '\\"' * MEGABYTE + "\\",
        "{'" * MEGABYTE,
        '{"' * MEGABYTE,
        "[1" + " " * MEGABYTE + ",x]",
    ],
)
def test_hostile_texts_take_linear_time(text: str) -> None:
    with pytest.raises(RemotingFormatError):
        read(text)


@given(st.binary(max_size=60) | st.text("{}[]:,'\"\\0a \n-", max_size=40).map(str.encode))
def test_no_text_raises_anything_else(text: bytes) -> None:
    try:
        read(text)
    except RemotingFormatError:
        return

"""Ext fields and their typed headers."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketpy_proto.remoting import (
    EXCHANGES,
    REQUEST_BODIES,
    RESPONSE_BODIES,
    Header,
    NoFields,
    RemotingFormatError,
    RequestCode,
    UnencodableRemotingError,
)
from rocketpy_proto.remoting.fields import HeaderForm
from rocketpy_proto.remoting.headers.offsets import OffsetResponse, SearchOffsetRequest
from rocketpy_proto.remoting.headers.pulls import (
    SUBSCRIPTION,
    PullMessageRequest,
    PullMessageResponse,
)
from rocketpy_proto.remoting.headers.sends import (
    SEND_V2_NAMES,
    SendMessageRequest,
    SendMessageResponse,
)
from tests.unit.remoting.recorded import FRAMES, needs_golden, request, response
from tests.unit.remoting.strategies import TEXTS, values_of

FORMS = [
    (f"{code.name}-{side}", form)
    for code, exchange in EXCHANGES.items()
    for side, form in (("request", exchange.request), ("response", exchange.response))
    if form.kind is not NoFields
]
each_form = pytest.mark.parametrize("form", [form for _, form in FORMS], ids=[n for n, _ in FORMS])
# Examples of each of the many forms.
EXAMPLES = 10
# Fields of 5.x clients and tools that our servers ignore, and the fields of a signature.
LEFT_OUT = {"ReqT", "AccessKey", "Signature"}


def test_what_has_a_body_has_headers() -> None:
    assert set(REQUEST_BODIES) | set(RESPONSE_BODIES) <= set(EXCHANGES)


@needs_golden
@pytest.mark.parametrize("frame", FRAMES, ids=[frame.name for frame in FRAMES])
def test_every_field_that_was_recorded_is_known_and_written_again(frame: object) -> None:
    assert isinstance(frame, type(FRAMES[0]))
    command = frame.command()
    asked = command if frame.is_request else request(frame.exchange)
    if asked.code not in EXCHANGES or (not frame.is_request and command.code):
        return
    exchange = EXCHANGES[RequestCode(asked.code)]
    form = exchange.request if frame.is_request else exchange.response
    wanted = {name: text for name, text in command.ext_fields.items() if name not in LEFT_OUT}
    assert form.encode(form.decode(command.ext_fields)) == wanted


@needs_golden
def test_a_recorded_send_is_what_it_was() -> None:
    form = EXCHANGES[RequestCode.SEND_MESSAGE_V2]
    assert form.request.decode(
        request("06_send_v2_binary_header").ext_fields
    ) == SendMessageRequest(
        producer_group="GoldP",
        topic="GoldT",
        queue_id=0,
        born_ms=1_700_000_000_000,
        properties="TAGS\x01TagB\x02UNIQ_KEY\x01AC11000118B4AAC2463D8D7C0000AAAB\x02",
        broker_name="broker-p",
    )
    assert form.response.decode(
        response("06_send_v2_binary_header").ext_fields
    ) == SendMessageResponse(
        msg_id="7F000001000097FF0000000000001BE4",
        queue_id=0,
        queue_offset=1,
        transaction_id="AC11000118B4AAC2463D8D7C0000AAAB",
        region_id="DefaultRegion",
        is_trace_on=True,
    )


@needs_golden
def test_a_recorded_pull_is_what_it_was() -> None:
    form = EXCHANGES[RequestCode.PULL_MESSAGE]
    asked = form.request.decode(request("12_pull_not_found").ext_fields)
    assert isinstance(asked, PullMessageRequest)
    assert asked.sys_flag & SUBSCRIPTION
    assert asked.subscription == "*"
    # Answers with codes other than 0 have the offsets, too.
    answered = form.response.decode(response("12_pull_not_found").ext_fields)
    assert isinstance(answered, PullMessageResponse)
    assert answered.next_begin_offset == answered.max_offset == asked.queue_offset


@needs_golden
def test_a_recorded_search_is_what_it_was() -> None:
    form = EXCHANGES[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP]
    asked = form.request.decode(request("24_search_offset_upper").ext_fields)
    assert isinstance(asked, SearchOffsetRequest)
    assert asked.boundary_type == "UPPER"
    assert isinstance(form.response.decode({"offset": "7", "x": "y"}), OffsetResponse)


def test_a_batch_send_and_a_send_differ_in_their_names_only() -> None:
    header = SendMessageRequest("g", "t", -1, 5, is_batch=True, broker_name="b")
    long = EXCHANGES[RequestCode.SEND_MESSAGE].request.encode(header)
    short = EXCHANGES[RequestCode.SEND_BATCH_MESSAGE].request.encode(header)
    assert short == {SEND_V2_NAMES[name]: text for name, text in long.items()}
    assert short["m"] == "true"
    assert set(SEND_V2_NAMES) == {
        field.encode_name for field in msgspec.structs.fields(SendMessageRequest)
    }
    assert sorted(SEND_V2_NAMES.values()) == list("abcdefghijklmn")


@each_form
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_a_header_is_the_same_behind_its_fields(
    form: HeaderForm[Header], data: st.DataObject
) -> None:
    header = data.draw(values_of(form.kind))
    fields = form.encode(header)
    assert all(isinstance(text, str) for text in fields.values())
    assert form.decode(fields) == header
    assert form.decode({**fields, "later": "x"}) == header


@each_form
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_fields_of_any_kind_raise_nothing_else(
    form: HeaderForm[Header], data: st.DataObject
) -> None:
    names = st.sampled_from([*form.names.values(), *_names(form.kind), "x"])
    texts = TEXTS | st.integers().map(str) | st.sampled_from(["true", "null", "", "9" * 5000])
    fields = data.draw(st.dictionaries(names, texts, max_size=20))
    try:
        form.decode(fields)
    except RemotingFormatError:
        return


def _names(kind: type[Header]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(kind)]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"topic": "t"}, "missing required field `queueId`"),
        ({"topic": "t", "queueId": ""}, "$.queueId"),
        ({"topic": "t", "queueId": "2147483648"}, "<= 2147483647"),
        ({"topic": "t", "queueId": "1 "}, "$.queueId"),
        ({"topic": "t", "queueId": "9" * 5000}, "out of range"),
    ],
)
def test_what_is_missing_or_wrong_is_named(fields: dict[str, str], told: str) -> None:
    form = EXCHANGES[RequestCode.GET_MIN_OFFSET].request
    with pytest.raises(RemotingFormatError, match=f"^QueueRequest: .*{re.escape(told)}"):
        form.decode(fields)


def test_a_header_that_nobody_could_read_is_not_written() -> None:
    form = EXCHANGES[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP].request
    for header in (
        SearchOffsetRequest("t", 1 << 31, 0),
        SearchOffsetRequest("t", 0, 1 << 63),
        SearchOffsetRequest(None, 0, 0),  # type: ignore[arg-type]
    ):
        with pytest.raises(UnencodableRemotingError, match="SearchOffsetRequest"):
            form.encode(header)


def test_a_request_without_fields_has_none() -> None:
    form = EXCHANGES[RequestCode.LOCK_BATCH_MQ].request
    assert form.encode(NoFields()) == {}
    assert form.decode({"bname": "b"}) == NoFields()

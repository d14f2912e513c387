"""Requests of the API from any path, query and body: a request of the contract, or a refusal."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.server.http.api.requests import body_fields, filled, query_fields
from rocketpy_broker.server.http.api.routes import PAGE_COUNT_MAX, ROUTES, Route
from rocketpy_proto.rocketpy.v1 import broker_pb2

TEXTS = st.text(max_size=8) | st.sampled_from(
    ["true", "-1", "7", str(1 << 63), "2026-05-01T08:00Z"]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3)
)


@st.composite
def asked(draw: st.DrawFn) -> tuple[Route, Any]:
    """Draws a route, and the arguments of a request."""
    route = draw(st.sampled_from(ROUTES))
    path = {name: draw(TEXTS) for name in route.names}
    keys = st.sampled_from([*query_fields(route), "other"])
    query = draw(st.lists(st.tuples(keys, TEXTS), max_size=3))
    fields = st.sampled_from([*body_fields(route), "other"])
    body = draw(st.dictionaries(fields, VALUES, max_size=3) | VALUES)
    return route, (path, query, json.dumps(body).encode())


@given(asked())
def test_any_request_is_filled_or_refused(drawn: tuple[Route, Any]) -> None:
    route, arguments = drawn
    try:
        request: Any = filled(route, *arguments)
    except ParameterIllegalError:
        return
    assert type(request).FromString(request.SerializeToString()) == request
    if "count_max" in route.query:
        assert 0 < request.count_max <= PAGE_COUNT_MAX
    if isinstance(request, broker_pb2.PullRequest):
        assert request.offset_end - request.offset <= PAGE_COUNT_MAX


@given(st.binary(max_size=20))
def test_a_body_of_any_bytes_is_an_object_or_refused(body: bytes) -> None:
    route = next(each for each in ROUTES if each.body == "config")
    with contextlib.suppress(ParameterIllegalError):
        request: Any = filled(route, {"topic": "orders"}, [], body)
        assert isinstance(json.loads(body.strip() or b"{}"), dict)
        assert request.config.topic == "orders"

"""Conversion of HTTP requests into requests of the contract."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from rocketpy_broker.contract_json import Field, is_map, is_time, key_of, message_class
from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.runtime.time_format import ms_of_time, parsed_time
from rocketpy_broker.server.http.api.routes import PAGE_COUNT, PAGE_COUNT_MAX, Route
from rocketpy_proto.texts import is_unicode

COUNT = "count_max"
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_BITS = {FieldDescriptor.CPPTYPE_INT32: 32, FieldDescriptor.CPPTYPE_INT64: 64}
_BOOLEANS = {"true": True, "false": False}
_TIME = "a time with its zone, such as 2026-05-01T08:00:00Z"


def filled(
    route: Route, path: Mapping[str, str], query: Iterable[tuple[str, str]], body: bytes
) -> Message:
    """Returns the request of a route. Raises ParameterIllegalError for a value that is not legal.

    `path` has the texts of the route's places, `query` all parameters in order.
    """
    request = route.request(**route.fixed)
    for name in route.names:
        _put(request, route.place(name), path[name])
    known = query_fields(route)
    given: set[str] = set()
    for key, text in query:
        if key not in known:
            raise ParameterIllegalError("parameter", key, _any_of(known))
        place, descriptor = known[key]
        if key in given and not descriptor.is_repeated:
            raise ParameterIllegalError(key, "given twice", "one value")
        given.add(key)
        _put(request, place, text)
    if COUNT in route.query:
        _limit(request)
    _fill(request, route, json_object(body))
    if route.finish is not None:
        route.finish(request)
    return request


def _limit(request: Any) -> None:
    """Sets the size of a page. Raises ParameterIllegalError."""
    count = request.count_max or PAGE_COUNT
    if not 0 < count <= PAGE_COUNT_MAX:
        raise ParameterIllegalError("countMax", count, f"1 to {PAGE_COUNT_MAX}")
    request.count_max = count


# --- The fields of a route ---


def field_at(route: Route, place: str) -> Field:
    """Returns the field at a place of a route's request."""
    kind: Any = route.request.DESCRIPTOR
    *parents, last = place.split(".")
    for name in parents:
        kind = kind.fields_by_name[name].message_type
    return kind.fields_by_name[last]


def query_fields(route: Route) -> dict[str, tuple[str, Field]]:
    """Returns the parameters of a route's query by key: their place and their field."""
    fields = ((place, field_at(route, place)) for place in route.query)
    return {key_of(descriptor): (place, descriptor) for place, descriptor in fields}


def body_class(route: Route) -> type[Message] | None:
    """Returns the class of the message that a route's body has; None without a body."""
    if not route.body:
        return None if route.body is None else route.request
    return message_class(field_at(route, route.body))


def body_fields(route: Route) -> dict[str, Field]:
    """Returns the fields that a route's body may have, by key: all that the path lacks."""
    kind = body_class(route)
    taken = {field_at(route, route.place(name)) for name in route.names}
    fields = () if kind is None else kind.DESCRIPTOR.fields
    return {key_of(each): each for each in fields if each not in taken}


# --- Values ---


def json_object(body: bytes) -> dict[str, object]:
    """Returns the object of a body; an empty body is an empty object.

    Raises ParameterIllegalError.
    """
    try:
        found = json.loads(body) if body.strip() else {}
    except (ValueError, RecursionError) as error:
        raise ParameterIllegalError("body", body[:100], "a JSON object") from error
    if not isinstance(found, dict):
        raise ParameterIllegalError("body", found, "a JSON object")
    return found


def _fill(request: Message, route: Route, given: Mapping[str, object]) -> None:
    known = body_fields(route)
    message = getattr(request, route.body) if route.body else request
    for key, value in given.items():
        if key not in known:
            raise ParameterIllegalError("field", key, _any_of(known))
        descriptor = known[key]
        choice = descriptor.containing_oneof
        if choice is not None and len(choice.fields) > 1 and message.WhichOneof(choice.name):
            accepted = f"only one of {', '.join(map(key_of, choice.fields))}"
            raise ParameterIllegalError("field", key, accepted)
        _set(message, descriptor, value)


def _put(request: Message, place: str, text: str) -> None:
    """Sets a field by the text of a path or a query."""
    message: Any = request
    *parents, last = place.split(".")
    for name in parents:
        inner = getattr(message, name)
        if message.DESCRIPTOR.fields_by_name[name].is_repeated:
            message = inner[0] if len(inner) else inner.add()
        else:
            message = inner
    descriptor = message.DESCRIPTOR.fields_by_name[last]
    value = _value_of_text(descriptor, text)
    _set(message, descriptor, [value] if descriptor.is_repeated else value)


def _value_of_text(descriptor: Field, text: str) -> object:
    if descriptor.cpp_type in _BITS and not is_time(descriptor):
        return int(text) if _NUMBER.fullmatch(text) else text
    if descriptor.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return _BOOLEANS.get(text, text)
    return text


def _set(message: Any, descriptor: Field, value: object) -> None:
    """Sets a field to a value in JSON. Raises ParameterIllegalError."""
    name, key = descriptor.name, key_of(descriptor)
    if is_map(descriptor):
        if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
            raise ParameterIllegalError(key, value, "an object of texts")
        for inner, text in value.items():
            getattr(message, name)[_text(key, inner)] = _text(key, text)
    elif descriptor.is_repeated:
        if not isinstance(value, list):
            raise ParameterIllegalError(key, value, "a list")
        getattr(message, name).extend(_converted(descriptor, key, each) for each in value)
    else:
        setattr(message, name, _converted(descriptor, key, value))


def _converted(descriptor: Field, key: str, value: object) -> object:
    """Returns one value as protobuf takes it. Raises ParameterIllegalError."""
    if is_time(descriptor):
        return _time(key, value)
    if descriptor.cpp_type in _BITS:
        bound = 1 << (_BITS[descriptor.cpp_type] - 1)
        if isinstance(value, bool) or not isinstance(value, int) or not -bound <= value < bound:
            raise ParameterIllegalError(key, value, f"a whole number, {-bound} to {bound - 1}")
        return value
    if descriptor.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        if not isinstance(value, bool):
            raise ParameterIllegalError(key, value, "true or false")
        return value
    return _text(key, value)


def _time(key: str, value: object) -> int:
    if not isinstance(value, str):
        raise ParameterIllegalError(key, value, _TIME)
    try:
        return ms_of_time(parsed_time(value))
    except ValueError as error:
        raise ParameterIllegalError(key, value, _TIME) from error


def _text(key: str, value: object) -> str:
    """Returns a text. Raises ParameterIllegalError for another value, or for invalid Unicode."""
    if not isinstance(value, str) or not is_unicode(value):
        raise ParameterIllegalError(key, value, "a text")
    return value


def _any_of(names: Iterable[str]) -> str:
    shown: Iterator[str] = iter(names)
    return f"any of {', '.join(shown)}" if names else "none"

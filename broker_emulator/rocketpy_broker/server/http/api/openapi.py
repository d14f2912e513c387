"""The OpenAPI description of the routes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from rocketpy_broker.contract_json import (
    Field,
    fields_of,
    is_map,
    is_time,
    may_be_null,
    message_class,
)
from rocketpy_broker.server.http.api.answers import MESSAGES, has_messages
from rocketpy_broker.server.http.api.requests import (
    COUNT,
    body_class,
    body_fields,
    field_at,
    query_fields,
)
from rocketpy_broker.server.http.api.routes import (
    PAGE_COUNT,
    PAGE_COUNT_MAX,
    PREFIX,
    ROUTES,
    Route,
    Sends,
)

Schema = dict[str, Any]
_INTEGERS = {FieldDescriptor.CPPTYPE_INT32: "int32", FieldDescriptor.CPPTYPE_INT64: "int64"}
_TEXT: Schema = {"type": "string"}
_INTEGER: Schema = {"type": "integer", "format": "int64"}
_TIME: Schema = {"type": "string", "format": "date-time"}
_TEXTS: Schema = {"type": "array", "items": _TEXT}
_MAP: Schema = {"type": "object", "additionalProperties": _TEXT}
_BODIES: Mapping[str, Schema] = {"body": _TEXT, "bodyBase64": _TEXT}
_MESSAGE: Mapping[str, Schema] = {
    "topic": _TEXT,
    "queueId": _INTEGER,
    "queueOffset": _INTEGER,
    "msgId": _TEXT,
    "offsetMsgId": _TEXT,
    "bornTimestamp": _TIME,
    "storeTimestamp": _TIME,
    "reconsumeTimes": _INTEGER,
    "tags": {"type": ["string", "null"]},
    "keys": _TEXTS,
    "properties": _MAP,
}
_SENT: Mapping[str, Schema] = {
    "topic": _TEXT,
    "queueId": _INTEGER,
    "queueOffset": {"type": ["integer", "null"], "format": "int64"},
    "msgId": _TEXT,
}
# The components that are no messages of the contract.
_COMPONENTS: Mapping[str, Schema] = {
    "Error": {
        "type": "object",
        "properties": {"code": _INTEGER, "message": _TEXT},
        "required": ["code", "message"],
    },
    "Message": {
        "type": "object",
        "properties": {
            **_MESSAGE,
            **_BODIES,
            "bodyError": _TEXT,
            "bodyIsCut": {"type": "boolean"},
        },
        "required": [*_MESSAGE],
        "oneOf": [{"required": [key]} for key in _BODIES],
    },
    "OutgoingMessage": {
        "type": "object",
        "properties": {
            **_BODIES,
            "tags": _TEXT,
            "keys": _TEXTS,
            "properties": _MAP,
            "queueId": _INTEGER,
            "delayLevel": _INTEGER,
            "deliverAt": _TIME,
        },
        "oneOf": [{"required": [key]} for key in _BODIES],
    },
    "SentMessage": {"type": "object", "properties": dict(_SENT), "required": [*_SENT]},
}


@cache
def openapi_text() -> bytes:
    """Returns the description as JSON."""
    return json.dumps(openapi()).encode()


def openapi() -> Schema:
    """Returns the description, in version 3.1 of OpenAPI."""
    components = dict(_COMPONENTS)
    paths: dict[str, Schema] = {}
    for route in ROUTES:
        operations = paths.setdefault(route.shown_path, {})
        operations[route.method.lower()] = _operation(route, components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "rocketpy broker", "version": "1"},
        "servers": [{"url": PREFIX}],
        "security": [{}, {"basic": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
        },
    }


def _operation(route: Route, components: dict[str, Schema]) -> Schema:
    found: Schema = {
        "operationId": f"{route.method.lower()}{route.rpc.partition('/')[2]}{_suffix(route)}",
        "summary": route.summary,
        "tags": [route.path.split("/")[1]],
        "parameters": [*_path_parameters(route), *_query_parameters(route)],
        "responses": {
            "200": _content("The answer", _answer(route, components)),
            "default": _content("An error", _ref("Error")),
        },
    }
    body = _body(route)
    if body is not None:
        found["requestBody"] = _content("", body)
        del found["requestBody"]["description"]
    return found


def _suffix(route: Route) -> str:
    """Returns the end of an id where one method of the contract answers several routes."""
    same = [each for each in ROUTES if (each.method, each.rpc) == (route.method, route.rpc)]
    return "" if len(same) == 1 else f"{same.index(route) + 1}"


def _path_parameters(route: Route) -> list[Schema]:
    keys = [part[1:-1] for part in route.shown_path.split("/") if part.startswith("{")]
    fields = [field_at(route, route.place(name)) for name in route.names]
    return [
        {"name": key, "in": "path", "required": True, "schema": _single_schema(field)}
        for key, field in zip(keys, fields, strict=True)
    ]


def _query_parameters(route: Route) -> list[Schema]:
    return [
        {"name": key, "in": "query", "schema": _parameter_schema(field)}
        for key, (_, field) in query_fields(route).items()
    ]


def _parameter_schema(field: Field) -> Schema:
    if field.name == COUNT:
        limits = {"minimum": 1, "maximum": PAGE_COUNT_MAX, "default": PAGE_COUNT}
        return {**_single_schema(field), **limits}
    return _given_schema(field)


def _given_schema(field: Field) -> Schema:
    """Returns the schema of a value in a request."""
    if is_map(field):
        return _MAP
    schema = _single_schema(field)
    return {"type": "array", "items": schema} if field.is_repeated else schema


def _body(route: Route) -> Schema | None:
    if route.sends is Sends.BODY:
        return _ref("OutgoingMessage")
    if route.sends is Sends.DEAD_LETTER:
        return {
            "type": "object",
            "properties": {"topic": {"type": "string", "minLength": 1}},
            "additionalProperties": False,
        }
    if body_class(route) is None:
        return None
    properties = {key: _given_schema(field) for key, field in body_fields(route).items()}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _answer(route: Route, components: dict[str, Schema]) -> Schema:
    if route.sends is not None:
        return _ref("SentMessage")
    if not route.entry:
        return _component(route.answer, components)
    if has_messages(route.answer):
        return _ref("Message")
    entries = route.answer.DESCRIPTOR.fields_by_name[route.entry]
    return _component(message_class(entries), components)


def _component(kind: type[Message], components: dict[str, Schema]) -> Schema:
    """Adds the schema of a message type in answers; returns a reference to it."""
    name = kind.DESCRIPTOR.name
    if name not in components:
        properties: dict[str, Schema] = {}
        components[name] = {"type": "object", "properties": properties}
        for field in fields_of(kind):
            properties[field.key] = _value_schema(field.descriptor, components)
        if has_messages(kind):
            properties[MESSAGES] = {"type": "array", "items": _ref("Message")}
        components[name]["required"] = [*properties]
    return _ref(name)


def _value_schema(field: Field, components: dict[str, Schema]) -> Schema:
    """Returns the schema of a field's value in answers."""
    if is_map(field):
        return _MAP
    if field.message_type is None:
        schema = _single_schema(field)
    else:
        schema = _component(message_class(field), components)
    if may_be_null(field):
        schema = _or_null(schema)
    return {"type": "array", "items": schema} if field.is_repeated else schema


def _or_null(schema: Schema) -> Schema:
    if "$ref" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    nullable = {**schema, "type": [schema["type"], "null"]}
    return {**nullable, "enum": [*schema["enum"], None]} if "enum" in schema else nullable


def _single_schema(field: Field) -> Schema:
    """Returns the schema of one value that is no message."""
    if is_time(field):
        return _TIME
    if field.enum_type is not None:
        return {"type": "string", "enum": [each.name for each in field.enum_type.values[1:]]}
    if field.cpp_type in _INTEGERS:
        return {"type": "integer", "format": _INTEGERS[field.cpp_type]}
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return {"type": "boolean"}
    if field.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE:
        return {"type": "number"}
    return _TEXT


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _content(description: str, schema: Schema) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": schema}}}

"""A check of JSON by the schemas of an OpenAPI description, as far as ours goes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}
KNOWN = {
    *("$ref", "type", "format", "properties", "additionalProperties", "required", "items"),
    *("enum", "anyOf", "oneOf"),
}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def faults(description: Any, schema: Any, value: Any, place: str = "") -> Iterator[str]:
    """Yields a sentence for each place of a value that its schema does not allow.

    Unlike JSON Schema, an object must not have keys that its schema does not name.
    """
    assert not schema.keys() - KNOWN, schema
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield from faults(description, description["components"]["schemas"][name], value, place)
        return
    if "anyOf" in schema:
        found = [[*faults(description, each, value, place)] for each in schema["anyOf"]]
        if all(found):
            yield from found[0]
        return
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(_is(value, each) for each in types):
        yield f"{place} is {value!r}, its type is {types}"
        return
    if value is not None:
        yield from _faults_of_value(description, schema, value, place)


def _faults_of_value(description: Any, schema: Any, value: Any, place: str) -> Iterator[str]:
    if value not in schema.get("enum", [value]):
        yield f"{place} is {value!r}, which is none of {schema['enum']}"
    if schema.get("format") == "date-time" and not TIME.fullmatch(value):
        yield f"{place} is {value!r}, which is no time"
    if isinstance(value, list):
        for number, each in enumerate(value):
            yield from faults(description, schema["items"], each, f"{place}[{number}]")
    if isinstance(value, dict):
        yield from _faults_of_object(description, schema, value, place)


def _faults_of_object(description: Any, schema: Any, value: Any, place: str) -> Iterator[str]:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    for key in schema.get("required", []):
        if key not in value:
            yield f"{place} lacks {key}"
    for key, each in value.items():
        inner = properties.get(key, others)
        if inner is None:
            yield f"{place} has {key}, which the schema does not name"
        else:
            yield from faults(description, inner, each, f"{place}.{key}")
    choices = schema.get("oneOf")
    if choices and sum(set(each["required"]) <= value.keys() for each in choices) != 1:
        yield f"{place} has not exactly one of {choices}"


def _is(value: Any, name: str) -> bool:
    is_bool = isinstance(value, bool)
    return isinstance(value, TYPES[name]) and (is_bool == (name == "boolean"))

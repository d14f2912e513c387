r"""Java's properties text: `name=value`, a line each.

Java's reader takes a text as ISO-8859-1, so other characters are written as \uXXXX. A comment
begins with # or !. Source: MixAll#properties2String, #string2Properties.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = {"\\": r"\\", **{value: f"\\{name}" for name, value in _CONTROLS.items()}}
# A name ends at the first separator that is not escaped.
_NAME = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
# A line continues after an odd number of backslashes.
_CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\\n[ \t\f]*")


def properties_text(properties: Mapping[str, str]) -> str:
    """Returns the text of properties, sorted by name."""
    return "".join(f"{name}={_escaped(properties[name])}\n" for name in sorted(properties))


def parse_properties(text: str) -> dict[str, str]:
    """Returns the properties of a text; the last value of a name counts."""
    properties = {}
    whole = _CONTINUED.sub(r"\1", text.replace("\r\n", "\n").replace("\r", "\n"))
    for line in (each.lstrip(" \t\f") for each in whole.split("\n")):
        if line and line[0] not in "#!":
            found = _NAME.match(line)
            assert found is not None
            properties[_plain(found[1])] = _plain(line[found.end() :])
    return properties


def _escaped(value: str) -> str:
    # Java skips blanks before a value.
    begin = "\\" if value.startswith(" ") else ""
    return begin + "".join(_ESCAPED.get(each) or _in_ascii(each) for each in value)


def _in_ascii(character: str) -> str:
    if character.isascii():
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


def _plain(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        name = found[1]
        return chr(int(name[1:], 16)) if len(name) > 1 else _CONTROLS.get(name, name)

    plain = _ESCAPE.sub(character, text)
    # Two escapes may be one character.
    return plain.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")

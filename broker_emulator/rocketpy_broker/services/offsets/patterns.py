"""The pattern of an offset query; an error names the parameter."""

from __future__ import annotations

from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_proto.model.topic_pattern import PatternError, TopicPattern


def topic_pattern(text: str) -> TopicPattern:
    """Returns the pattern of a request. Raises ParameterIllegalError."""
    try:
        return TopicPattern(text)
    except PatternError as error:
        accepted = f"a regular expression that RE2 reads ({error})"
        raise ParameterIllegalError("topic_pattern", f"{text:.1000}", accepted) from error

"""Rules of names and texts, with the codes of `apache.rocketmq.v2`.

Source: GrpcValidator, TopicValidator, docs/design/grpc_v2_semantics.md sections 3 and 7.1.
"""

from __future__ import annotations

import re

from rocketpy_broker.server.apache_v2.status import StatusError
from rocketpy_broker.services.groups.manager import GROUP_BYTES_MAX, GROUP_PATTERN
from rocketpy_broker.services.topics.manager import TOPIC_BYTES_MAX, TOPIC_PATTERN
from rocketpy_broker.services.topics.system import RESERVED
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.model import RESERVED_PREFIX, SYSTEM_GROUP_PREFIX

# ISO control characters, as Java has them.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_ACCEPTED = "of the characters a-z A-Z 0-9 _ - % |"


def check_topic(topic: str) -> None:
    """Raises StatusError for an illegal topic name, or one of the broker's own."""
    if len(topic) > TOPIC_BYTES_MAX or not TOPIC_PATTERN.fullmatch(topic):
        raise StatusError(
            v2.ILLEGAL_TOPIC,
            f"topic name {topic!r:.200} is illegal; use 1 to {TOPIC_BYTES_MAX} {_ACCEPTED}",
        )
    if topic in RESERVED or topic.startswith(RESERVED_PREFIX):
        raise StatusError(
            v2.ILLEGAL_TOPIC, f"topic {topic!r} is the broker's own; use another topic"
        )


def check_group(group: str) -> None:
    """Raises StatusError for an illegal name of a consumer group, or one of the broker's own."""
    if not GROUP_PATTERN.fullmatch(group):
        raise StatusError(
            v2.ILLEGAL_CONSUMER_GROUP,
            f"consumer group name {group!r:.200} is illegal; use 1 to {GROUP_BYTES_MAX} "
            f"{_ACCEPTED}",
        )
    if group.startswith(SYSTEM_GROUP_PREFIX):
        raise StatusError(
            v2.ILLEGAL_CONSUMER_GROUP, f"group {group!r} is the broker's own; use another group"
        )


def has_control_character(text: str) -> bool:
    """True if a text has a control character."""
    return _CONTROL.search(text) is not None


def is_blank(text: str) -> bool:
    """True if a text is empty or has only white space."""
    return not text.strip()

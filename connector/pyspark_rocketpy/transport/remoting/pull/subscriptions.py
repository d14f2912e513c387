"""Subscription expressions of pulls: tags, or SQL92.

Source: docs/design/remoting.md section 2.5.1.
"""

from __future__ import annotations

from pyspark_rocketpy.transport.remoting.cluster.queue_requests import ALL, SQL92, TAG
from pyspark_rocketpy.transport.values import PullOptions

_OR = "||"


def expression_of(options: PullOptions) -> tuple[str, str]:
    """Returns the type of the expression, and its text.

    Brokers know no quotes. An expression that cannot name all tags matches all messages: the task
    compares tags anyway.
    """
    if options.expression is not None:
        return SQL92, options.expression
    if not options.tags or not all(map(_can_be_named, options.tags)):
        return TAG, ALL
    return TAG, f" {_OR} ".join(options.tags)


def _can_be_named(tag: str) -> bool:
    return bool(tag) and tag == tag.strip() and _OR not in tag and tag != ALL

"""What a broker is told to leave out: an expression of tags or of SQL92. Pure functions, no state.

Source: docs/design/remoting.md 2.5.1.
"""

from __future__ import annotations

from pyspark_rocketpy.transport.remoting.cluster.queue_requests import ALL, SQL92, TAG
from pyspark_rocketpy.transport.values import PullOptions

_OR = "||"


def expression_of(options: PullOptions) -> tuple[str, str]:
    """Returns the type of the expression, and its text.

    Brokers know no quotes: tags that an expression cannot name are left to the task, with all
    others, for it compares tags anyway.
    """
    if options.expression is not None:
        return SQL92, options.expression
    if not options.tags or not all(map(_can_be_named, options.tags)):
        return TAG, ALL
    return TAG, f" {_OR} ".join(options.tags)


def _can_be_named(tag: str) -> bool:
    return bool(tag) and tag == tag.strip() and _OR not in tag and tag != ALL

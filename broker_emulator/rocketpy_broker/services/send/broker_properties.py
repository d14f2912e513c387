"""Properties that a broker adds to the messages of RocketMQ's clients.

Source: SendMessageProcessor, docs/design/broker_behaviour.md section 1.3.
"""

from __future__ import annotations

REGION_ID = "DefaultRegion"


def broker_properties(cluster_name: str) -> dict[str, str]:
    """Returns the properties by name."""
    return {"CLUSTER": cluster_name, "MSG_REGION": REGION_ID, "TRACE_ON": "true"}

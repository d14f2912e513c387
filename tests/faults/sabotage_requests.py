"""Known faults of requests that never come as a whole, in the form of `sabotage`."""

from __future__ import annotations

from tests.faults.sabotage import SERVER, Sabotage

IN_UNFINISHED = "tests/broker/server/test_incomplete_requests.py::test_n14_"
IN_RECEIVED = "tests/broker/server/test_connection_traffic.py::test_n14_"

REQUESTS = (
    Sabotage(
        "clients that flood the broker with unfinished requests are not bounded",
        SERVER + "calls/senders.py",
        "strange > STRANGERS_BYTES_MAX",
        "False",
        (IN_UNFINISHED + "a_flood_of_strangers_is_bounded_though_all_get_on",),
    ),
    Sabotage(
        "a request that came while its call was ended is taken up",
        SERVER + "calls/incomplete_requests.py",
        "            if context not in reads:\n",
        "            if False:\n",
        (IN_UNFINISHED + "a_request_that_comes_while_its_call_is_ended_is_not_taken_up",),
    ),
    Sabotage(
        "a request that comes slowly is taken for one that stalls",
        SERVER + "calls/senders.py",
        "traffic.received - self._enough >= PROGRESS_BYTES",
        "False",
        (IN_UNFINISHED + "who_gets_on_does_not_end_however_slowly_all_send",),
    ),
    Sabotage(
        "what a method was given counts as held",
        SERVER + "calls/senders.py",
        "self.held + gained - delivered",
        "self.held + gained",
        (IN_UNFINISHED + "a_stream_that_idles_is_believed_to_hold_nothing",),
    ),
    Sabotage(
        "a descriptor that has become another connection's is believed",
        SERVER + "calls/connection_traffic.py",
        "            if _peer(connection) == name:\n",
        "            if True:\n",
        (IN_RECEIVED + "a_descriptor_that_became_another_connection_s_tells_nothing",),
    ),
)

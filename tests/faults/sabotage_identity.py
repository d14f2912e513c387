"""Known faults of what tells stores and topics apart, in the form of `sabotage`."""

from __future__ import annotations

from tests.faults.sabotage import STORE, Sabotage

IN_STORE_ID = "tests/broker/operations/test_store_id.py::test_s9_"

IDENTITY = (
    Sabotage(
        "a request for another store is taken",
        STORE + "message_store.py",
        '        if store_id not in {"", self.store_id}:\n',
        "        if not self.store_id:\n",
        (IN_STORE_ID + "a_refused_block_does_not_end_its_stream",),
    ),
    Sabotage(
        "a store's id is drawn at each start",
        STORE + "files/store_id.py",
        "    if not path.exists():\n",
        "    if path.parent.exists():\n",
        (IN_STORE_ID + "the_id_survives_restarts_and_offsets_tell_it",),
    ),
)

"""Known faults of queues that cannot grow, in the form of `sabotage`."""

from __future__ import annotations

from tests.faults.sabotage import STORE, Sabotage

IN_GROWTH = "tests/store/queues/test_growth.py::"

GROWTH = (
    Sabotage(
        "a message is stored before its queue has room",
        STORE + "append/appender.py",
        "        self._growth.reserve(runs)\n",
        "        assert runs\n",
        (
            IN_GROWTH + "test_f17_a_queue_without_room_refuses_its_own_messages_and_no_others"
            "[SYNC_FLUSH]",
        ),
    ),
    Sabotage(
        "a queue that cannot grow holds up all others",
        STORE + "dispatcher.py",
        "            if request.queue in self._held or not self._append(written):\n",
        "            if self._held or not self._append(written):\n",
        (IN_GROWTH + "test_f17_messages_that_were_stored_wait_for_their_queue_alone[SYNC_FLUSH]",),
    ),
)

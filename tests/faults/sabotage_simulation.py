"""Known faults of services that wait, retry and decide, each found by the simulation's seeds.

Each is found within the first seeds of row M2; the test stops at the first that fails.
"""

from __future__ import annotations

from tests.faults.sabotage import SERVICES, Sabotage

FOUND = ("tests/faults/test_m02_simulation.py::test_m2_no_seed_breaks_a_promise[0]",)
FOUND_LATER = ("tests/faults/test_m02_simulation.py::test_m2_no_seed_breaks_a_promise[50]",)
FOUND_LAST = ("tests/faults/test_m02_simulation.py::test_m2_no_seed_breaks_a_promise[100]",)

SIMULATION_SABOTAGES = (
    Sabotage(
        "delayed messages come early",
        SERVICES + "delay/levels.py",
        "is_early: NDArray[np.bool_] = stretch.tags_codes > now_ms\n",
        "is_early: NDArray[np.bool_] = stretch.tags_codes > now_ms + 700\n",
        FOUND,
    ),
    Sabotage(
        "what was delivered before a crash is not looked for",
        SERVICES + "delay/progress.py",
        "np.isin(physical_offsets, self._delivered)\n",
        "np.isin(physical_offsets, self._delivered) & False\n",
        FOUND,
    ),
    Sabotage(
        "a message that was taken back is not",
        SERVICES + "delay/timer/records.py",
        "    void[of_hash[is_void]] = True\n",
        "",
        FOUND_LATER,
    ),
    Sabotage(
        "progress of a delay level is saved before the message",
        SERVICES + "delay/progress.py",
        "        flushed = self._store.flushed_end\n        begin = ",
        "        flushed = self._store.positions().log_end\n        begin = ",
        FOUND,
    ),
    Sabotage(
        "open half messages are cleaned",
        SERVICES + "transactions/progress.py",
        "        return NOTHING_NEEDED if stretch is None else int(",
        "        return NOTHING_NEEDED if begin >= 0 else int(",
        FOUND,
    ),
    Sabotage(
        "a final message without an op message is not looked for",
        SERVICES + "transactions/progress.py",
        "        if not self._table.is_over(offset):\n            told.note(",
        "        if offset < 0:\n            told.note(",
        FOUND_LAST,
    ),
    Sabotage(
        "an end of a transaction is not noted",
        SERVICES + "transactions/service.py",
        "            self._progress.decided(begin, offset)\n",
        "            self._progress.decided(begin, offset + 1)\n",
        FOUND,
    ),
    Sabotage(
        "locks are over too soon",
        SERVICES + "groups/locks.py",
        "if lock.client_id != client_id and now_ms - lock.last_update_ms <= LOCK_MS:",
        "if lock.client_id != client_id and now_ms - lock.last_update_ms <= LOCK_MS / 2:",
        FOUND,
    ),
    Sabotage(
        "locks are held for ever",
        SERVICES + "groups/locks.py",
        "LOCK_MS = 60_000\n",
        "LOCK_MS = 60_000_000\n",
        FOUND,
    ),
    Sabotage(
        "a held pull is not woken",
        SERVICES + "long_polling/waiters.py",
        "        for watch in self._by_queue.get(queue, ()):\n",
        "        for watch in [*self._by_queue.get(queue, ())][1:]:\n",
        FOUND,
    ),
    Sabotage(
        "dead letters are dropped",
        SERVICES + "retry/service.py",
        "        is_dead = level == DEAD_LETTER_LEVEL\n",
        "        is_dead = level == DEAD_LETTER_LEVEL\n"
        "        if is_dead:\n            return [SentBackTo.DEAD_LETTER] * len(block)\n",
        FOUND,
    ),
)

"""Known faults of messages and calls that wait, and of transactions, in the form of `sabotage`."""

from __future__ import annotations

from tests.faults.sabotage import SERVICES, Sabotage

IN_LEVELS = "tests/broker/delay/test_levels.py::test_d03_"
IN_CRASH = "tests/broker/delay/test_crash.py::test_d04_"
IN_ENDING = "tests/broker/transactions/test_ends.py::test_n11_"
IN_CHECKING = "tests/broker/transactions/test_check_service.py::test_t04_"
IN_ENDED = "tests/broker/transactions/test_crash.py::test_t05_"
IN_GATHERING = "tests/broker/send/test_batcher.py::test_"
IN_HERDS = "tests/broker/offsets/test_herds.py::test_b11_"
IN_BATCH = "tests/broker/batches/test_waits.py::test_d02_"

WAITING = (
    Sabotage(
        "a held query is not told of messages",
        SERVICES + "long_polling/waiters.py",
        "        for watch in self._by_topic.get(queue.topic, ()):\n",
        "        for watch in set[Watch]():\n",
        (IN_HERDS + "a_query_over_few_queues_is_answered_at_once",),
        hangs=True,
    ),
    Sabotage(
        "what comes while a held query looks is forgotten",
        SERVICES + "long_polling/waiters.py",
        "        if any(self._changes):\n",
        "        if False:\n",
        (IN_HERDS + "what_changes_while_a_held_query_looks_is_looked_at",),
    ),
    Sabotage(
        "gathered messages are told each other's places",
        SERVICES + "send/batcher.py",
        "        _tell(sends, topic, block, result)\n",
        "        _tell(sends[::-1], topic, block, result)\n",
        (IN_GATHERING + "p01_messages_of_one_pass_are_one_block_and_each_is_told_its_place",),
    ),
    Sabotage(
        "a gathered message waits for the disk although it declines to",
        SERVICES + "send/batcher.py",
        "        if any(mark in records for mark in ALONE):\n",
        "        if False:\n",
        (IN_GATHERING + "p01_a_message_that_does_not_wait_for_the_disk_says_so",),
    ),
    Sabotage(
        "a delayed message comes early",
        SERVICES + "delay/levels.py",
        "        is_early: NDArray[np.bool_] = stretch.tags_codes > now_ms\n",
        "        is_early: NDArray[np.bool_] = stretch.tags_codes > now_ms + 2_000\n",
        (IN_LEVELS + "a_message_comes_when_its_level_is_over_and_not_before[ASYNC_FLUSH]",),
    ),
    Sabotage(
        "a released message does not name the one that waited",
        SERVICES + "delay/release.py",
        '            "prepared_transaction_offset": origin_fields(origins),\n',
        "",
        (IN_CRASH + "what_was_delivered_before_a_crash_is_not_delivered_again[SYNC_FLUSH]",),
        hangs=True,
    ),
    Sabotage(
        "what was delivered is flushed only when somebody else sends",
        SERVICES + "delay/release.py",
        "        finally:\n            self._group_commit.flush_soon()\n",
        "        finally:\n            pass\n",
        (IN_CRASH + "what_was_delivered_before_a_crash_is_not_delivered_again[SYNC_FLUSH]",),
        hangs=True,
    ),
    Sabotage(
        "a staged message is put where it waits as it is",
        SERVICES + "batches/roll_forward.py",
        "            if found.may_wait:\n",
        "            if False:\n",
        (IN_BATCH + "a_staged_message_begins_to_wait_with_the_commit[ASYNC_FLUSH]",),
    ),
    Sabotage(
        "a repeated commit is stored again",
        SERVICES + "transactions/service.py",
        "        if not self._is_repeated(half, command.decision):\n",
        "        if not self._is_repeated(half, command.decision) or True:\n",
        (IN_ENDING + "a_decision_told_again_changes_nothing_and_another_is_refused[commit]",),
    ),
    Sabotage(
        "anybody may end a transaction",
        SERVICES + "transactions/service.py",
        "        if half.producer_group != command.producer_group:\n",
        "        if False:\n",
        (IN_ENDING + "another_groups_end_and_no_decision_are_refused",),
    ),
    Sabotage(
        "a start does not look for final messages",
        SERVICES + "transactions/progress.py",
        "                self._found_final(physical_offset, Operation.COMMIT, told)\n",
        "                pass\n",
        (IN_ENDED + "a_message_whose_op_message_is_lost_is_not_committed_again[ASYNC_FLUSH]",),
    ),
    Sabotage(
        "checks are not counted",
        SERVICES + "transactions/messages.py",
        "        times = half.check_times + is_counted\n",
        "        times = half.check_times\n",
        (
            IN_CHECKING
            + "after_15_checks_a_transaction_is_given_up_for_an_operator_to_find[ASYNC_FLUSH]",
        ),
    ),
)

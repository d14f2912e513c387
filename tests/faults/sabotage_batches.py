"""Known faults of prepared batches, in the form of `sabotage`."""

from __future__ import annotations

from tests.faults.sabotage import SERVICES, STORE, Sabotage

IN_BATCHES = "tests/broker/test_batches.py::test_s08_"
IN_HINDERED = "tests/broker/test_hindered_batches.py::test_s08_"
IN_S08 = "tests/faults/test_s08_late_commit.py::test_s08_"

BATCHES = (
    Sabotage(
        "a late commit is accepted",
        SERVICES + "batches.py",
        "            if batch.batch_id <= last:\n",
        "            if batch.batch_id < 0:\n",
        (IN_BATCHES + "a_batch_or_an_older_one_again_is_answered_and_never_shows",),
    ),
    Sabotage(
        "the decision is written after the messages",
        SERVICES + "batches.py",
        """            self._decide(batch)
            count = await self._finish(batch.writer_id)
""",
        """            append = self._log.append_decision
            self._log.append_decision = lambda batch: Decision(batch, 0, 0, 0)
            self._decide(batch)
            count = await self._finish(batch.writer_id)
            append(batch)
""",
        (IN_HINDERED + "what_stopped_half_way_is_finished_by_the_next_start",),
    ),
    Sabotage(
        "a start does not look how far a batch has got",
        SERVICES + "batches.py",
        "        self._find_progress()\n",
        "",
        (IN_HINDERED + "what_stopped_half_way_is_finished_by_the_next_start",),
    ),
    Sabotage(
        "a batch is answered before its messages are stored",
        SERVICES + "batches.py",
        "        await self._group_commit.wait(pending.log_end)\n",
        "",
        (IN_HINDERED + "a_disk_that_is_too_slow_is_an_answer_and_the_batch_gets_there",),
    ),
    Sabotage(
        "what a client gave up is never finished",
        SERVICES + "batches.py",
        "                        await self._try_to_finish(writer_id)\n",
        "                        pass\n",
        (IN_HINDERED + "what_nobody_asks_for_any_more_is_finished_all_the_same",),
    ),
    Sabotage(
        "blocks of another attempt are committed",
        STORE + "prepared.py",
        '        if (header["prepared_transaction_offset"] != token).any():\n',
        "        if token == 0:\n",
        (IN_BATCHES + "foreign_plain_and_overlapping_records_are_refused",),
    ),
    Sabotage(
        "a prepared record is found by its key",
        STORE + "message_lookup.py",
        "        return found if is_message else None\n",
        "        return found\n",
        (IN_BATCHES + "a_prepared_message_is_neither_found_by_key_nor_by_id_and_shows_once_after",),
    ),
    Sabotage(
        "the ledger's file knows of what is not on disk",
        SERVICES + "batch_ledger.py",
        "        if newest.log_end <= flushed:\n",
        "        if True:\n",
        (IN_S08 + "the_ledgers_file_knows_nothing_that_a_power_cut_can_take_back",),
    ),
)

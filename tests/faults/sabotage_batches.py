"""Known faults of batches, in the form of `sabotage`."""

from __future__ import annotations

from tests.faults.sabotage import SERVICES, STORE, Sabotage

IN_BATCHES = "tests/broker/batches/test_service.py::test_s08_"
IN_STAGING = "tests/broker/batches/test_staging_service.py::test_s10_"
IN_HINDERED = "tests/broker/batches/test_hindered.py::test_s08_"
IN_LOST = "tests/broker/batches/test_hindered.py::test_s10_"
IN_OLD_KIND = "tests/broker/batches/test_old_kind.py::test_s08_"
IN_S08 = "tests/faults/test_s08_late_commit.py::test_s08_"

BATCHES = (
    Sabotage(
        "a late commit is accepted",
        SERVICES + "batches/service.py",
        "            if job.batch_id > self._ledger.last_batch(job.writer_id):\n",
        "            if job.batch_id >= 0:\n",
        (IN_BATCHES + "a_batch_or_an_older_one_again_is_answered_and_never_shows",),
    ),
    Sabotage(
        "the messages are stored without a decision",
        SERVICES + "batches/service.py",
        "        pending = self._decided(self._log.append_decision(batch, body), attempts)\n",
        """        next_offset = self._store.next_offset(BATCHES_QUEUE)
        log_end = self._store.positions().log_end
        pending = self._decided(Decision(batch, next_offset, log_end, 0), attempts)
""",
        (IN_HINDERED + "what_stopped_half_way_is_finished_by_the_next_start",),
    ),
    Sabotage(
        "a start does not look how far a batch has got",
        SERVICES + "batches/service.py",
        "        await self._find_progress()\n",
        "",
        (IN_HINDERED + "what_stopped_half_way_is_finished_by_the_next_start",),
    ),
    Sabotage(
        "a start takes another batch's messages for its own",
        STORE + "append/batch_marks.py",
        "    is_own = numbers >> _NUMBER_BITS == first_number(decision, 0) >> _NUMBER_BITS\n",
        "    is_own = numbers >> _NUMBER_BITS >= 0\n",
        (IN_HINDERED + "others_messages_in_between_are_no_progress_of_a_batch",),
    ),
    Sabotage(
        "a client's messages may carry numbers",
        STORE + "append/batch_marks.py",
        "np.arange(len(block)) if first else 0\n",
        "np.arange(len(block)) if first else field\n",
        (IN_BATCHES + "a_client_cannot_number_its_messages",),
    ),
    Sabotage(
        "a batch is answered before its messages are stored",
        SERVICES + "batches/service.py",
        "        await self._group_commit.wait(pending.log_end)\n",
        "",
        (IN_HINDERED + "a_disk_that_is_too_slow_is_waited_for",),
        hangs=True,
    ),
    Sabotage(
        "what is lost counts as stored",
        SERVICES + "batches/roll_forward.py",
        "    pending.passed = before + lost.record_count\n",
        "    pending.passed = before + lost.record_count\n"
        "    pending.stored_count += lost.record_count\n",
        (IN_LOST + "what_is_lost_after_the_decision_is_counted_and_told_again_and_again[removed]",),
    ),
    Sabotage(
        "a staged block's checksum is not compared",
        STORE + "staging/file.py",
        "body_crc(payload.data) == self.head.payload_crc",
        "body_crc(payload.data) >= 0",
        (IN_LOST + "what_is_lost_after_the_decision_is_counted_and_told_again_and_again[payload]",),
    ),
    Sabotage(
        "an attempt is committed with other counts than it has",
        SERVICES + "batches/commit_check.py",
        "not staged.is_sealed or staged.counts != task.counts:",
        "not staged.is_sealed:",
        (
            IN_BATCHES
            + "attempts_that_are_not_as_they_are_named_are_refused_and_nothing_done[bytes]",
        ),
    ),
    Sabotage(
        "a block that comes again is staged again",
        SERVICES + "batches/staging_service.py",
        "            elif command.block_number == attempt.staged.counts.block_count:\n",
        "            else:\n",
        (IN_STAGING + "a_block_that_comes_again_is_answered_and_kept_once",),
    ),
    Sabotage(
        "an attempt ends before it is on disk",
        STORE + "staging/area.py",
        "        if durable:\n            self.file.flush()\n",
        "",
        (IN_S08 + "what_is_decided_has_been_on_disk_before",),
    ),
    Sabotage(
        "cleaning takes the decision of a batch on its way",
        SERVICES + "batches/service.py",
        "(decision.physical_offset for decision in decisions), default=NOTHING_NEEDED",
        "(NOTHING_NEEDED for _ in decisions), default=NOTHING_NEEDED",
        (IN_LOST + "cleaning_leaves_what_a_pending_decision_needs",),
        hangs=True,
    ),
    Sabotage(
        "a batch of the old kind begins anew",
        SERVICES + "batches/old_kind.py",
        "                progress.offset = self._store.prepared.end_of(int(committed[own[-1]]))\n",
        "                progress.offset = 0\n",
        (IN_OLD_KIND + "a_batch_of_the_old_kind_is_finished_once[2]",),
    ),
    Sabotage(
        "a prepared record is found by its key",
        STORE + "queues/readers/messages.py",
        "        return found if has_queue_offset(found.record.sys_flag) else None\n",
        "        return found\n",
        ("tests/store/test_prepared.py::test_s08_a_prepared_record_is_found_by_nobody",),
    ),
    Sabotage(
        "the ledger's file knows of what is not on disk",
        SERVICES + "batches/ledger.py",
        "            if step.log_end > flushed:\n",
        "            if step.log_end < 0:\n",
        (IN_S08 + "the_ledgers_file_knows_nothing_that_a_power_cut_can_take_back",),
    ),
)

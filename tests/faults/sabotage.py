"""Known faults, each as a change of one file's text, and the quick tests that must notice it.

A text that is not in its file exactly once fails its row: the row then has to follow the code.
Tests are named by their pytest ids; every one of them must fail.
"""

from __future__ import annotations

from dataclasses import dataclass

STORE = "rocketpy_broker/store/"
SERVICES = "rocketpy_broker/services/"
SERVER = "rocketpy_broker/server/"
CONNECTOR = "pyspark_rocketpy/"
CODEC = "rocketpy_proto/record/"

IN_APPEND = "tests/broker/pull/test_append_and_pull.py::"
IN_STORE = "tests/store/test_message_store.py::"
IN_RECOVERY = "tests/store/recovery/test_restarts.py::"
IN_FILES = (
    "tests/store/files/test_durable.py::"
    "test_f2_a_change_is_on_the_disk_when_it_is_done_and_contents_before_names"
)
IN_F02 = "tests/faults/test_f02_worst_disk.py::"
IN_F05 = "tests/faults/test_f05_bit_flips.py::"
IN_F06 = "tests/faults/test_f06_derived_files.py::"
IN_F11 = "tests/faults/test_f11_clock.py::"
IN_CLEANING = "tests/store/test_cleaner.py::"
IN_INDEX = "tests/store/index/test_service.py::"
IN_ADMINISTRATION = "tests/broker/admin/test_administration.py::"
IN_F09 = "tests/faults/test_f09_slow_flush.py::"


@dataclass(frozen=True, slots=True)
class Sabotage:
    """A fault: in `path`, below the folders of the import packages, `old` becomes `new`."""

    name: str
    path: str
    old: str
    new: str
    noticed_by: tuple[str, ...]
    hangs: bool = False  # Its tests wait until their time is over.


FLUSHING = (
    Sabotage(
        "acknowledged before the flush",
        SERVICES + "flush/group_commit.py",
        "return not self._sync or self._store.flushed_end >= end_offset",
        "return self._store.refusal is None",
        (IN_APPEND + "test_f8_after_a_failed_flush_nothing_is_acknowledged_and_reading_goes_on",),
    ),
    Sabotage(
        "a failed flush is tried again",
        SERVICES + "flush/group_commit.py",
        """            self._store.flush_failed(error)
            self._fail_waiters(self._store.refusal or "")
""",
        """            self._fail_waiters("the flush failed")
""",
        (IN_APPEND + "test_f8_after_a_failed_flush_nothing_is_acknowledged_and_reading_goes_on",),
    ),
    Sabotage(
        "visible before the flush",
        STORE + "append/appender.py",
        "if self._config.flush_disk_type is FlushDiskType.ASYNC_FLUSH:\n                self._dis",
        "if self._config.flush_disk_type:\n                self._dis",
        (IN_STORE + "test_s07_with_sync_flush_a_record_is_visible_only_after_its_flush",),
    ),
    Sabotage(
        "a late flush is called a success",
        SERVER + "rocketpy_v1/append_answers.py",
        "answer.status.CopyFrom(status.failure(error))",
        "answer.status.CopyFrom(status.success() if error else answer.status)",
        (IN_F09 + "test_f9_a_send_whose_flush_takes_too_long_is_told_so_with_its_place",),
    ),
    Sabotage(
        "who declines to wait has to wait",
        SERVICES + "send/append_service.py",
        "            waits = not _declines_to_wait(block)\n",
        "            waits = len(block) > 0 or not _declines_to_wait(block)\n",
        (IN_F09 + "test_f9_who_declines_to_wait_is_answered_while_a_flush_hangs[false]",),
    ),
    Sabotage(
        "what is appended during a flush counts as flushed",
        STORE + "message_store.py",
        "self._log.flushed = max(self._log.flushed, plan.end)",
        "self._log.flushed = max(self._log.end, plan.end)",
        (IN_STORE + "test_s07_what_is_appended_during_a_flush_waits_for_the_next",),
    ),
    Sabotage(
        "the mark is written before the flush",
        STORE + "message_store.py",
        """        return FlushPlan(
""",
        """        self._directory.flushed(self._log.end)
        return FlushPlan(
""",
        (IN_RECOVERY + "test_s09_what_was_about_to_be_flushed_is_a_torn_tail_and_no_damage",),
    ),
    Sabotage(
        "records are flushed without their checksums",
        STORE + "log/commit_log.py",
        "        return segments + [self.checksums.of(segment).file for segment in segments]\n",
        "        return segments\n",
        (IN_F02 + "test_f2_what_was_flushed_is_all_there[SYNC_FLUSH]",),
    ),
    Sabotage(
        "recovery flushes without writing again",
        STORE + "log/commit_log.py",
        "            for start in range(position, stop, REWRITE_BYTES):\n",
        "            for start in range(stop, stop, REWRITE_BYTES):\n",
        (IN_RECOVERY + "test_f8_what_was_not_flushed_is_written_again_before_recovery_flushes_it",),
    ),
    Sabotage(
        "names are not flushed",
        STORE + "files/durable.py",
        """        os.fsync(descriptor)
    finally:
""",
        """        os.fstat(descriptor)
    finally:
""",
        (IN_FILES + "[replace_text]", IN_FILES + "[remove_file]"),
    ),
    Sabotage(
        "renamed before it is flushed",
        STORE + "files/durable.py",
        """        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


@contextmanager
""",
        """    os.replace(temporary, path)
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    sync_folder(path.parent)


@contextmanager
""",
        (IN_FILES + "[replace_bytes]",),
    ),
    Sabotage(
        "a flush acknowledges what came after it began",
        SERVICES + "flush/group_commit.py",
        "        while self._waiters and self._waiters[0][0] <= plan.end:\n",
        "        while self._waiters:\n",
        (IN_F09 + "test_f9_a_flush_acknowledges_only_what_was_there_when_it_began",),
    ),
    Sabotage(
        "derived files are flushed again after a failure",
        STORE + "derived.py",
        "            self.is_sealed = error.errno not in OUT_OF_DESCRIPTORS\n",
        "            assert error\n",
        (IN_STORE + "test_f8_derived_files_are_never_flushed_again_after_a_failure",),
    ),
)

LOG = (
    Sabotage(
        "store times follow a clock that steps back",
        STORE + "times.py",
        "            return max(now_ms, self.last_ms)\n",
        "            return now_ms\n",
        (
            IN_F11
            + "test_f11_store_times_never_fall_within_a_queue[stepping back each second-none]",
        ),
    ),
    Sabotage(
        "a body's CRC is not compared",
        CODEC + "block/record_block.py",
        """        _refuse(wrong, self.positions, "body CRC does not match")
""",
        """        _refuse(wrong & ~wrong, self.positions, "body CRC does not match")
""",
        (IN_APPEND + "test_s02_a_block_that_may_not_be_stored_is_refused_whole[malformed-block4]",),
    ),
    Sabotage(
        "a block takes a byte of the blank record's place",
        STORE + "log/commit_log.py",
        "        needed = length + BLANK_BYTES\n",
        "        needed = length + BLANK_BYTES - 1\n",
        (IN_STORE + "test_s01_what_is_left_of_a_segment_holds_a_blank_record_at_least[7]",),
    ),
    Sabotage(
        "a refused block stays in the log",
        STORE + "log/commit_log.py",
        "            segment.write(position, memoryview(bytes(len(block.data))))\n",
        "",
        (IN_RECOVERY + "test_s15_no_record_of_a_refused_block_comes_back",),
    ),
    Sabotage(
        "the abort marker goes before the manifest is saved",
        STORE + "files/directory.py",
        """        self.save(manifest)
        self._mark.write(Mark(manifest.log_end, os.getpid(), clean=True))
""",
        """        durable.remove_file(self._abort)
        self.save(manifest)
        self._mark.write(Mark(manifest.log_end, os.getpid(), clean=True))
""",
        (IN_STORE + "test_b04_a_stop_that_cannot_save_its_manifest_leaves_the_abort_marker",),
    ),
    Sabotage(
        "a store that failed stops as if it had not",
        STORE + "message_store.py",
        "        healthy = self._refusal is None\n",
        "        healthy = self._directory.is_held\n",
        (
            IN_STORE
            + "test_b04_a_stop_after_a_failed_flush_flushes_nothing_and_leaves_the_abort_marker",
        ),
    ),
)

RECOVERY = (
    Sabotage(
        "a record's checksum is not compared",
        STORE + "log/commit_log.py",
        "        return Comparison(known, known & wrong)\n",
        "        return Comparison(known, known & wrong & ~known)\n",
        (
            IN_F05
            + "test_f05_a_scan_of_the_log_detects_every_flipped_bit_of_a_flushed_record[last]",
        ),
    ),
    Sabotage(
        "the log ends at the first bad record",
        STORE + "log/scanner.py",
        "        if offset < self._trust.flushed:\n",
        "        if offset < 0:\n",
        (
            IN_F05
            + "test_f05_after_a_crash_a_flushed_record_with_a_flipped_bit_is_kept_apart[plain]",
        ),
    ),
    Sabotage(
        "a torn tail stays in the file",
        STORE + "log/commit_log.py",
        "            segment.clear_from(end - segment.base)\n",
        "            segment.used_end(end - segment.base)\n",
        (IN_RECOVERY + "test_s09_a_torn_last_record_is_cut_and_leaves_no_trace[50]",),
    ),
    Sabotage(
        "what a killed broker left is not flushed",
        STORE + "recovery/store_opener.py",
        "        durable.sync_whole_store(config.folder)\n",
        "        assert durable\n",
        (
            IN_F02
            + "test_s10_a_queue_that_a_killed_broker_made_is_on_the_disk_behind_the_next_start",
        ),
    ),
    Sabotage(
        "a queue without units forgets where it is",
        STORE + "queues/consume_queue.py",
        "self._files.remove_from(max(end, begin + 1) if begin > 0 else end)",
        "self._files.remove_from(max(end, begin))",
        (IN_F02 + "test_s10_a_queue_whose_only_file_a_power_cut_has_emptied_goes_on_where_it_was",),
    ),
    Sabotage(
        "a log without messages forgets where it begins",
        STORE + "log/commit_log.py",
        "        self.files.remove_from(max(end, self.begin + 1))\n",
        "        self.files.remove_from(end)\n",
        (IN_F02 + "test_s10_a_log_whose_only_segment_a_power_cut_has_emptied_begins_where_it_did",),
    ),
    Sabotage(
        "a torn tail is cut without a copy",
        STORE + "recovery/passes.py",
        """                self._quarantined.append(
                    self._store.quarantine.keep(name, segment.view[start:used])
                )
""",
        """                assert name
""",
        (IN_RECOVERY + "test_s09_a_torn_last_record_is_cut_and_leaves_no_trace[50]",),
    ),
    Sabotage(
        "the offset of a damaged record is given again",
        STORE + "recovery/passes.py",
        """        if known is None:
            # What a filler takes the place of is there no more.
            self._note_lost(damage)
""",
        "        known = None\n",
        (IN_F05 + "test_f05_a_damaged_record_keeps_its_offset_though_its_queue_is_lost",),
    ),
    Sabotage(
        "the manifest is believed unseen",
        STORE + "queues/prefixes.py",
        "    return crc & CRC_MASK == prefix.crc\n",
        "    return crc != -1 or prefix.crc != -1\n",
        (
            IN_F06
            + "test_f06_all_combinations_of_derived_files_are_rebuilt_byte_for_byte[garbled-True]",
        ),
    ),
    Sabotage(
        "a wrong unit of a consume queue stays",
        STORE + "queues/consume_queue.py",
        "                self._put_right(offset, right)\n",
        "                assert len(right)\n",
        (
            IN_F06
            + "test_f06_all_combinations_of_derived_files_are_rebuilt_byte_for_byte[garbled-True]",
        ),
    ),
    Sabotage(
        "keys of recovered records are not entered",
        STORE + "recovery/passes.py",
        "        self._store.index.put(found.index_keys, block.positions + offset, "
        "store_timestamps_ms)\n",
        "        assert len(store_timestamps_ms)\n",
        (
            IN_F06
            + "test_f06_all_combinations_of_derived_files_are_rebuilt_byte_for_byte[removed-True]",
        ),
    ),
    Sabotage(
        "keys are entered twice",
        STORE + "index/service.py",
        "        begin = self._known(offsets)\n",
        "        begin = 0 if len(offsets) else self._known(offsets)\n",
        (IN_INDEX + "test_s05_dispatching_again_from_anywhere_enters_no_key_twice",),
    ),
    Sabotage(
        "missing files of the log are not noticed",
        STORE + "recovery/plan.py",
        "if self.ours and self.mark is not None and log_end < self.mark.flushed:",
        "if self.ours and self.mark is not None and log_end < 0:",
        (IN_RECOVERY + "test_s09_a_log_that_is_shorter_than_what_was_flushed_stops_the_start",),
    ),
    Sabotage(
        "what another broker did counts as ours",
        STORE + "recovery/plan.py",
        "        return self.aborted is None or is_our_abort_text(self.aborted)\n",
        "        return True\n",
        (IN_RECOVERY + "test_s09_what_another_broker_has_added_needs_no_checksums",),
    ),
)

SERVING = (
    Sabotage(
        "a damaged record is delivered",
        STORE + "queues/readers/range_reader.py",
        "            good = good if damaged is None else damaged\n",
        "            good = good if damaged is None else good\n",
        (
            IN_F05
            + "test_f05_after_a_clean_restart_reading_detects_every_flipped_bit_of_a_record[plain]",
        ),
    ),
    Sabotage(
        "a held pull is never let go of",
        SERVICES + "long_polling/waiters.py",
        "            del self._watches[watch]\n",
        "",
        (IN_APPEND + "test_c08_a_held_pull_is_answered_when_a_message_arrives",),
    ),
    Sabotage(
        "a topic is deleted without a mark",
        STORE + "queues/table.py",
        "        self._deleted.mark(topic, log_end, over)\n",
        "",
        (IN_RECOVERY + "test_a_deleted_topic_never_comes_back_into_one_of_the_same_name",),
    ),
    Sabotage(
        "the first reading of the clock is believed",
        STORE + "cleaner.py",
        "agreed_ms >= self._policy.confirm_ms",
        "agreed_ms >= 0",
        ("tests/store/test_cleaner.py::test_f11_the_first_reading_after_a_start_removes_nothing",),
    ),
    Sabotage(
        "a topic's queues go before its mark",
        SERVICES + "flush/store_files.py",
        "lambda: deletions.mark(topic), lambda: deletions.forget(topic)",
        "lambda: [deletions.forget(topic), deletions.mark(topic)]",
        (IN_ADMINISTRATION + "test_a_topic_whose_mark_cannot_be_saved_keeps_its_messages",),
    ),
    Sabotage(
        "what is not on disk yet is cleaned",
        STORE + "message_store.py",
        "min(self._log.flushed, self._dispatcher.end, needed)\n",
        "self._log.end\n",
        (IN_CLEANING + "test_s10_what_is_not_on_disk_yet_stays",),
    ),
)

SABOTAGES = FLUSHING + LOG + RECOVERY + SERVING

"""Known faults, one for each promise, and the quick tests that detect them.

A fault's `with_fault` gets the original, so that it may call it. Tests are named by their pytest
ids; each of them must fail.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rocketpy_broker.store.files import durable
from rocketpy_broker.store.log.commit_log import Comparison
from rocketpy_broker.store.log.filler import fill
from rocketpy_broker.store.message_store import NOTHING_NEEDED
from rocketpy_proto.record.compression import inflate
from tests.faults.planted_faults.known_pair_faults import PAIR_FAULTS
from tests.faults.planted_faults.planted import Fault, always, constant, nothing, nothing_awaited

STORE, SERVICES = "rocketpy_broker.store.", "rocketpy_broker.services."

APPENDS = "tests/broker/pull/test_append_and_pull.py::"
BITS = "tests/faults/damage/test_f05_bit_flips.py::test_f05_"
COMMITS = "tests/broker/batches/test_service.py::test_s08_"
COMBINATIONS = (
    "tests/faults/damage/test_f06_derived_files.py::"
    "test_f06_all_combinations_of_derived_files_are_rebuilt_byte_for_byte"
)
EPOCHS = "tests/broker/topics/test_epochs.py::test_s9_"
FILES = (
    "tests/store/files/test_durable.py::"
    "test_f2_a_change_is_on_the_disk_when_it_is_done_and_contents_before_names"
)
HINDERED = "tests/broker/batches/test_hindered.py::test_"
HANDOVER = "tests/store/recovery/test_rocketmq_export.py::test_f16_"
LATE = "tests/faults/batches/test_s08_late_commit.py::"
RESTARTS = "tests/store/recovery/test_restarts.py::"
SIMULATION = "tests/faults/simulation/test_m02_simulation.py::test_m2_no_seed_breaks_a_promise[0]"
STORED = "tests/store/test_message_store.py::"


def _plan_marked(original: Any) -> Any:
    def plan_flush(self: Any) -> Any:
        self._directory.flushed(self._log.end)
        return original(self)

    return plan_flush


def _filled_without_place(_original: object) -> Any:
    def fill_record(self: Any, damage: Any, _filled: object) -> bool:
        fill(self._store.log, damage, self._times.last_ms, None)
        return False

    return fill_record


def _known_and_whole(original: Any) -> Any:
    def compare(self: Any, *args: Any) -> Comparison:
        known = original(self, *args).known
        return Comparison(known, np.zeros_like(known))

    return compare


def _renamed_first(_original: object) -> Any:
    def replace_bytes(path: Path, data: bytes) -> None:
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_bytes(data)
        temporary.replace(path)
        with path.open("rb") as file:
            os.fsync(file.fileno())
        durable.sync_folder(path.parent)

    return replace_bytes


def _leaked(original: Any) -> Any:
    @contextmanager
    def watch(self: Any, *line: Any) -> Iterator[Any]:
        with original(self, *line) as waiter:
            yield waiter
        self._watches[waiter] = None

    return watch


FAULTS = (
    # --- Flushing ---
    Fault(
        "a message is acknowledged before its flush",
        SERVICES + "flush.group_commit.GroupCommit.is_acknowledged",
        lambda _: lambda self, _end: self._store.refusal is None,
        (APPENDS + "test_f8_after_a_failed_flush_nothing_is_acknowledged_and_reading_goes_on",),
    ),
    Fault(
        "a failed flush is tried again",
        STORE + "message_store.MessageStore.flush_failed",
        nothing,
        (APPENDS + "test_f8_after_a_failed_flush_nothing_is_acknowledged_and_reading_goes_on",),
    ),
    Fault(
        "a file is renamed before its content is flushed",
        STORE + "files.durable.replace_bytes",
        _renamed_first,
        (FILES + "[replace_bytes]",),
    ),
    Fault(
        "an append during a flush counts as flushed",
        STORE + "message_store.MessageStore.flushed",
        lambda original: lambda self, plan: original(self, replace(plan, end=self._log.end)),
        (STORED + "test_s07_what_is_appended_during_a_flush_waits_for_the_next",),
    ),
    Fault(
        "the mark of the flushed end is written before the flush",
        STORE + "message_store.MessageStore.plan_flush",
        _plan_marked,
        (RESTARTS + "test_s09_what_was_about_to_be_flushed_is_a_torn_tail_and_no_damage",),
    ),
    Fault(
        "the name of a new file is not flushed",
        STORE + "files.durable.sync_folder",
        nothing,
        (FILES + "[replace_text]", FILES + "[remove_file]"),
    ),
    Fault(
        "a start flushes nothing that a killed broker left",
        STORE + "files.durable.sync_whole_store",
        nothing,
        (
            (
                "tests/faults/disks/test_f02_worst_disk.py::"
                "test_s10_a_queue_that_a_killed_broker_made_is_on_the_disk_behind_the_next_start"
            ),
        ),
    ),
    # --- The log and its recovery ---
    Fault(
        "store times follow a clock that steps back",
        STORE + "times.StoreTimes.next_ms",
        lambda _: lambda self: self._clock.now_ms(),
        (
            (
                "tests/faults/test_f11_clock.py::"
                "test_f11_store_times_never_fall_within_a_queue[stepping back each second-none]"
            ),
        ),
    ),
    Fault(
        "a body's CRC is not compared",
        "rocketpy_proto.record.block.record_block.RecordBlock.verify_body_crc",
        nothing,
        (APPENDS + "test_s02_a_block_that_may_not_be_stored_is_refused_whole[malformed-block4]",),
    ),
    Fault(
        "a block takes a byte of the place of the blank record",
        STORE + "log.commit_log.BLANK_BYTES",
        constant(7),
        (STORED + "test_s01_what_is_left_of_a_segment_holds_a_blank_record_at_least[7]",),
    ),
    Fault(
        "a record's checksum is not compared",
        STORE + "log.commit_log.CommitLog.compare",
        _known_and_whole,
        (
            BITS + "a_scan_of_the_log_detects_every_flipped_bit_of_a_flushed_record[last]",
            BITS + "after_a_clean_restart_reading_detects_every_flipped_bit_of_a_record[plain]",
        ),
    ),
    Fault(
        "the log ends at the first damaged record",
        STORE + "log.scanner.LogScanner._after_damage",
        nothing,
        (BITS + "after_a_crash_a_flushed_record_with_a_flipped_bit_is_kept_apart[plain]",),
    ),
    Fault(
        "a torn tail stays in the file",
        STORE + "log.segment.Segment.clear_from",
        lambda _: lambda self, position: self.used_end(position),
        (RESTARTS + "test_s09_a_torn_last_record_is_cut_and_leaves_no_trace[50]",),
    ),
    Fault(
        "the offset of a damaged record is assigned again",
        STORE + "recovery.passes.Recovery._fill",
        _filled_without_place,
        (BITS + "a_damaged_record_keeps_its_offset_though_its_queue_is_lost",),
    ),
    Fault(
        "a queue's file is not compared with the manifest",
        STORE + "queues.prefixes._is_of",
        always(True),
        (COMBINATIONS + "[garbled-True]",),
    ),
    Fault(
        "a stale unit of a consume queue stays",
        STORE + "queues.consume_queue.ConsumeQueue._put_right",
        nothing,
        (COMBINATIONS + "[garbled-True]",),
    ),
    Fault(
        "a log without its last files is opened",
        STORE + "recovery.plan.Traces.check_log",
        nothing,
        (RESTARTS + "test_s09_a_log_that_is_shorter_than_what_was_flushed_stops_the_start",),
    ),
    Fault(
        "the work of another broker counts as ours",
        STORE + "recovery.plan.Traces.ours",
        lambda _: property(lambda _self: True),
        (RESTARTS + "test_s09_what_another_broker_has_added_needs_no_checksums",),
    ),
    Fault(
        "records that RocketMQ has cut are shown again",
        STORE + "recovery.foreign.StaleRecords.is_stale",
        always(False),
        (
            HANDOVER + "what_rocketmq_has_cut_never_comes_back"
            "[RocketMQ alone-ends at a stale record-killed]",
        ),
    ),
    Fault(
        "two brokers open one directory",
        STORE + "files.directory.lock_file",
        nothing,
        (RESTARTS + "test_f12_a_second_store_on_the_directory_is_refused",),
    ),
    Fault(
        "a broker that has lost its lock appends",
        STORE + "message_store.MessageStore.check_directory",
        nothing,
        (
            (
                "tests/store/files/test_lock.py::"
                "test_f12_a_store_whose_lock_is_lost_takes_no_message[removed]"
            ),
        ),
    ),
    Fault(
        "a message is stored before its queue has space",
        STORE + "queues.allocator.QueueAllocator.reserve",
        nothing,
        (
            (
                "tests/store/queues/test_growth.py::"
                "test_f17_a_queue_without_room_refuses_its_own_messages_and_no_others[SYNC_FLUSH]"
            ),
        ),
    ),
    # --- Topics, cleaning, identity ---
    Fault(
        "a deleted topic has no mark",
        STORE + "files.topic_marks.TopicMarks.mark",
        nothing,
        (RESTARTS + "test_a_deleted_topic_never_comes_back_into_one_of_the_same_name",),
    ),
    Fault(
        "the first reading of the clock is trusted",
        STORE + "cleaner.Cleaner._reading_agrees",
        always(True),
        ("tests/store/test_cleaner.py::test_f11_the_first_reading_after_a_start_removes_nothing",),
    ),
    Fault(
        "a reading far ahead is trusted at once",
        "rocketpy_broker.runtime.guarded_clock.CONFIRM_MS",
        constant(0),
        ("tests/faults/test_f11_far_clock.py::test_f11_one_reading_far_ahead_is_not_believed",),
    ),
    Fault(
        "a request for another store is served",
        STORE + "message_store.MessageStore.check_id",
        nothing,
        ("tests/broker/admin/test_store_id.py::test_s9_a_refused_block_does_not_end_its_stream",),
    ),
    Fault(
        "a recreated topic counts as the old one",
        SERVICES + "topics.epochs.is_recreated",
        always(False),
        (EPOCHS + "a_pull_of_a_topic_that_was_made_again_is_refused_by_name",),
    ),
    Fault(
        "the mark of an emptied topic is not saved",
        STORE + "queues.table.ConsumeQueueTable.mark_emptied",
        nothing,
        ("tests/store/test_emptied_topics.py::test_a_crash_after_the_mark_finishes_at_the_start",),
    ),
    Fault(
        "a group stays beyond the end of a queue that was cut",
        SERVICES + "offsets.table.passed_ends",
        always({}),
        (
            (
                "tests/broker/offsets/queries/test_recoveries.py::"
                "test_s5_a_group_goes_on_where_a_power_cut_has_ended_its_queues"
            ),
        ),
    ),
    # --- Batches ---
    Fault(
        "a late commit is accepted",
        SERVICES + "batches.ledger.BatchLedger.last_batch",
        always(-1),
        (COMMITS + "a_batch_or_an_older_one_again_is_answered_and_never_shows",),
    ),
    Fault(
        "a start stores a batch again from its first message",
        SERVICES + "batches.service.BatchService._find_progress",
        nothing_awaited,
        (HINDERED + "s08_what_stopped_half_way_is_finished_by_the_next_start",),
    ),
    Fault(
        "an attempt ends before it is on disk",
        STORE + "staging.area.StagedAttempt.seal",
        lambda original: lambda self, *, durable: original(self, durable=durable and False),
        (LATE + "test_s08_what_is_decided_has_been_on_disk_before",),
    ),
    # --- Waiting messages, transactions, groups: found by the simulation ---
    Fault(
        "delayed messages are delivered early",
        SERVICES + "delay.levels.LevelDelivery._is_early",
        lambda original: lambda self, units, now_ms: original(self, units, now_ms + 700),
        (SIMULATION,),
    ),
    Fault(
        "open half messages are cleaned",
        SERVICES + "transactions.progress.TransactionProgress._open_from",
        always(NOTHING_NEEDED),
        (SIMULATION,),
    ),
    Fault(
        "a repeated commit stores the message again",
        SERVICES + "transactions.service.TransactionService._is_repeated",
        always(False),
        (
            (
                "tests/broker/transactions/test_ends.py::"
                "test_n11_a_decision_told_again_changes_nothing_and_another_is_refused[commit]"
            ),
        ),
    ),
    Fault(
        "queue locks expire too soon",
        SERVICES + "groups.locks.LOCK_MS",
        constant(30_000),
        (SIMULATION,),
    ),
    Fault(
        "a waiter stays after its call",
        SERVICES + "long_polling.waiters.LongPollWaiters.watch",
        _leaked,
        (APPENDS + "test_c08_a_held_pull_is_answered_when_a_message_arrives",),
    ),
    Fault(
        "a held pull is not woken",
        SERVICES + "long_polling.waiters.LongPollWaiters.notify_queue",
        nothing,
        (SIMULATION,),
    ),
    # --- Requests, bodies, clusters ---
    Fault(
        "incomplete requests of many clients have no limit",
        "rocketpy_broker.server.calls.incomplete_requests.READS_MAX",
        constant(1 << 40),
        (
            (
                "tests/broker/server/test_incomplete_requests.py::"
                "test_n14_a_flood_of_strangers_is_bounded"
            ),
        ),
    ),
    Fault(
        "a body that cannot be inflated stops its reader",
        "rocketpy_proto.record.compression.inflated_or_stored",
        lambda _: lambda body, *arguments: (inflate(body, *arguments), None),
        (
            (
                "tests/unit/record/test_compression.py::"
                "test_s11_what_is_wrong_with_a_body_is_told_without_the_body"
            ),
        ),
    ),
    Fault(
        "a query forgets its positions in hidden queues",
        "pyspark_rocketpy.source.plan.reconcile._Case._keep",
        nothing,
        (
            (
                "tests/unit/connector/source/plan/test_reconcile.py::"
                "test_s5_queues_of_one_broker_of_a_cluster_may_be_hidden"
            ),
        ),
    ),
    # --- Master and slave ---
    *PAIR_FAULTS,
)

"""Known faults of directories that change hands with RocketMQ; see `sabotage`."""

from __future__ import annotations

from tests.faults.sabotage import STORE, Sabotage

IN_DAMAGED = "tests/store/test_damaged_while_open.py::"
IN_HANDOVER = "tests/store/recovery/test_handover.py::"
IN_FOREIGN_LOG = "tests/store/recovery/test_foreign_log.py::"

HANDOVER = (
    Sabotage(
        "an abort text of ours that RocketMQ 4.9 has left is believed",
        STORE + "recovery/plan.py",
        "        if self.mark is None or not self.started_last:\n",
        "        if self.mark is None:\n",
        (
            IN_HANDOVER + "test_f16_after_our_crash_rocketmqs_messages_are_no_torn_tail"
            "[killed, 4.9 over ours]",
        ),
    ),
    Sabotage(
        "what another broker's recovery would cut is passed over",
        STORE + "recovery/plan.py",
        "        return Trust(their_start, Checksummed.NONE)\n",
        "        return Trust(1 << 62, Checksummed.NONE)\n",
        (IN_FOREIGN_LOG + "test_f16_damage_where_rocketmq_would_find_it_ends_the_log[body]",),
    ),
    Sabotage(
        "a filler is delivered",
        STORE + "queues/readers/range_reader.py",
        " & ~fillers_among(heads)\n",
        "\n",
        (
            IN_HANDOVER + "test_f16_a_filler_is_shown_to_nobody_and_its_offset_stays_taken"
            "[queues as they were]",
        ),
    ),
    Sabotage(
        "a unit that names the middle of a record is believed",
        STORE + "queues/readers/range_reader.py",
        "        good = _leading(here)\n",
        "        good, shown = len(here), np.ones(len(here), np.bool_)\n",
        (IN_HANDOVER + "test_s11_a_pull_believes_no_unit_that_names_the_middle_of_a_record",),
    ),
    Sabotage(
        "a unit that this process has written is believed",
        STORE + "queues/readers/record_copy.py",
        "    return parts if is_here.all() else None\n",
        "    return parts\n",
        (
            IN_DAMAGED
            + "test_f16_a_wrong_unit_of_a_record_that_this_process_wrote_costs_its_record_only"
            "[8--4-5-neighbours1]",
        ),
    ),
    Sabotage(
        "the last unit that this process has written is believed",
        STORE + "queues/readers/record_copy.py",
        "        if not is_here or magic not in (MAGIC_V1, MAGIC_V2):\n",
        "        if magic == 0:\n",
        (
            IN_DAMAGED
            + "test_f16_a_wrong_unit_of_a_record_that_this_process_wrote_costs_its_record_only"
            "[8--4-9-neighbours0]",
        ),
    ),
    Sabotage(
        "records that RocketMQ has cut come back behind its last one",
        STORE + "recovery/foreign.py",
        "        return expected is not None and record.queue_offset not in (0, expected)\n",
        "        return False\n",
        (
            IN_HANDOVER + "test_f16_what_rocketmq_has_cut_never_comes_back"
            "[RocketMQ alone-ends at a stale record-killed]",
        ),
    ),
)

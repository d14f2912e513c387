"""Known faults of what tells stores and topics apart, in the form of `sabotage`."""

from __future__ import annotations

from tests.faults.sabotage import SERVER, SERVICES, STORE, Sabotage

IN_RECOVERY = "tests/store/recovery/test_restarts.py::"
IN_STORE_ID = "tests/broker/admin/test_store_id.py::test_s9_"
IN_RECOVERIES = "tests/broker/offsets/test_recoveries.py::test_s5_"
IN_NAMES = "tests/broker/runtime/test_names.py::test_n12_"
IN_EPOCHS = "tests/broker/topics/test_epochs.py::test_s9_"

IDENTITY = (
    Sabotage(
        "two stores on one directory",
        STORE + "files/directory.py",
        "        fcntl.lockf(descriptor, operation | fcntl.LOCK_NB, 1, 0)\n",
        "        fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, 0)\n",
        (IN_RECOVERY + "test_f12_a_second_store_on_the_directory_is_refused",),
    ),
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
    Sabotage(
        "a start behind a power cut passes for one that takes nothing back",
        STORE + "files/recoveries.py",
        "        if abnormal or not known:\n",
        "        if not known:\n",
        (IN_RECOVERIES + "an_older_recovery_is_answered_with_cuts_for_each_queue",),
    ),
    Sabotage(
        "a group stays beyond the end of a queue that was cut",
        SERVICES + "offsets/table.py",
        "if queues[each] > end}",
        "if queues[each] > end > 1 << 60}",
        (IN_RECOVERIES + "a_group_goes_on_where_a_power_cut_has_ended_its_queues",),
    ),
    Sabotage(
        "a topic that is made again passes for the old one",
        SERVICES + "topics/epochs.py",
        "    return bool(known and own) and known != own\n",
        "    return bool(known and own) and known < 0\n",
        (
            IN_EPOCHS + "a_pull_of_a_topic_that_was_made_again_is_refused_by_name",
            IN_EPOCHS + "progress_of_a_topic_that_was_made_again_is_refused",
        ),
    ),
    Sabotage(
        "a pull looks at its topic at its begin alone",
        SERVICES + "pull/consume_service.py",
        "        self._checks.check_topic(request)\n        return command\n",
        "        return command\n",
        (IN_EPOCHS + "a_held_pull_gets_nothing_of_the_topic_that_comes_in_place",),
    ),
    Sabotage(
        "a request's names are not looked at",
        SERVER + "rocketpy_v1/handlers.py",
        "        names.check(message)\n",
        "        names.check_all([])\n",
        (IN_NAMES + "an_illegal_name_is_answered_before_anything_else[Broker.Pull]",),
    ),
)

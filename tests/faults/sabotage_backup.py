"""Faults about the lock of a directory, and about backups; see `sabotage`."""

from __future__ import annotations

from tests.faults.sabotage import SERVICES, STORE, Sabotage

IN_LOCK = "tests/store/files/test_lock.py::test_f12_"
IN_BACKUPS = "tests/broker/admin/test_backups.py::test_b13_"

BACKUP = (
    Sabotage(
        "a directory without its lock file is free",
        STORE + "files/directory.py",
        "        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)\n",
        "        fcntl.flock(descriptor, fcntl.LOCK_UN)\n",
        (IN_LOCK + "a_directory_that_was_moved_is_still_in_use",),
    ),
    Sabotage(
        "a lock that is lost is not noticed by a flush",
        STORE + "log/flush.py",
        "        # Another broker may have come meanwhile, and written over what was flushed.\n"
        "        self.check()\n",
        "",
        (IN_LOCK + "a_lock_lost_during_a_flush_acknowledges_nothing",),
    ),
    Sabotage(
        "a lock that is lost is not noticed by an append",
        STORE + "message_store.py",
        "        self.check_directory()\n        refusal",
        "        refusal",
        (IN_LOCK + "a_store_whose_lock_is_lost_takes_no_message[removed]",),
    ),
    Sabotage(
        "queues of a deleted topic stay in a copy",
        SERVICES + "admin/backup_service.py",
        "        if self._store.deletion_counts.total() != deletion_count:\n",
        "        if self._store.deletion_counts.total() < deletion_count:\n",
        (IN_BACKUPS + "a_topic_that_is_deleted_meanwhile_makes_the_copy_start_again",),
    ),
    Sabotage(
        "cleaning takes what a backup copies",
        SERVICES + "admin/backup_service.py",
        "self._log_begin if self._running and not self._is_stalled else",
        "self._log_begin if not self._running else",
        (IN_BACKUPS + "cleaning_waits_for_a_backup_and_says_so",),
        hangs=True,
    ),
)

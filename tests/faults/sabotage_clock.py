"""Known faults under a clock that is wrong, in the form of `sabotage`."""

from __future__ import annotations

from tests.faults.sabotage import STORE, Sabotage

BROKER = "rocketpy_broker/"
IN_FAR_CLOCK = "tests/faults/test_f11_far_clock.py::test_f11_"

CLOCK = (
    Sabotage(
        "a reading far ahead is believed at once",
        BROKER + "runtime/guarded_clock.py",
        "< CONFIRM_MS:\n",
        "< 0:\n",
        (IN_FAR_CLOCK + "one_reading_far_ahead_is_not_believed",),
    ),
    Sabotage(
        "store times stay as far ahead as they once were",
        STORE + "times.py",
        "        if ahead_ms <= AHEAD_MS_MAX:\n",
        "        if ahead_ms:\n",
        (IN_FAR_CLOCK + "store_times_are_right_again_a_minute_after_the_clock_is[none]",),
    ),
    Sabotage(
        "a search by time takes times to rise",
        STORE + "queues/readers/lookup.py",
        "in reversed(self._times.falls):\n",
        "in reversed(self._times.falls[:0]):\n",
        (IN_FAR_CLOCK + "a_search_by_time_finds_what_the_mended_clock_has_stored[none]",),
    ),
    Sabotage(
        "a manifest says not where times fell",
        STORE + "files/manifest.py",
        'content.get("storeTimeFalls", [])',
        '[] and content["storeTimeFalls"]',
        (IN_FAR_CLOCK + "a_search_by_time_finds_what_the_mended_clock_has_stored[clean]",),
    ),
)

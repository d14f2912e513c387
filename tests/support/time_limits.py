"""Time limits for events that tests wait for, on a machine that has other work.

No test depends on how fast an event occurs: a test that reaches the limit fails with its own words.
"""

from __future__ import annotations

WAIT_SECONDS_MAX = 240

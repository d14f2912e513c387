"""How long tests wait for what must come, on a machine that has other work. No state.

Nothing depends on how fast it comes: a test that has to wait so long fails by its own words.
"""

from __future__ import annotations

PATIENCE_SECONDS = 240

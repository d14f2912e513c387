"""Known faults of configuration files of which a save encodes what changed; see `sabotage`."""

from __future__ import annotations

from tests.faults.sabotage import SERVICES, Sabotage

IN_GROUPS = "tests/broker/groups/test_subscription_groups.py::test_b01_"
IN_TABLE_TEXT = "tests/broker/config_files/test_table_text.py::test_b01_"

CONFIG_FILES = (
    Sabotage(
        "a change that was refused is saved with the next",
        SERVICES + "config_files/table.py",
        """            self._file.save({**content, self._field: text})
            self._keeper.text = text
""",
        """            self._keeper.text = text
            self._file.save({**content, self._field: text})
""",
        (IN_GROUPS + "a_group_that_cannot_be_saved_yet_is_saved_with_the_schedule",),
    ),
    Sabotage(
        "what was loaded is forgotten when a save breaks off",
        SERVICES + "config_files/table_text.py",
        "            self.text = self.text.with_changes({**self._loaded, **changes})\n",
        "            loaded, self._loaded = self._loaded, {}\n"
        "            self.text = self.text.with_changes({**loaded, **changes})\n",
        (IN_TABLE_TEXT + "what_was_loaded_is_saved_behind_a_save_that_broke_off",),
    ),
)

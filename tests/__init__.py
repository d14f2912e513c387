"""The tests, whose helpers explain failed assertions as tests do."""

import sys

if "pytest" in sys.modules:
    sys.modules["pytest"].register_assert_rewrite("tests.support")

"""The README says what the code does: its tables are the code's."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.report import markdown
from pyspark_rocketpy.columns import column_table
from pyspark_rocketpy.option_specs import option_table
from pyspark_rocketpy.options import SINK_OPTIONS, SOURCE_OPTIONS
from pyspark_rocketpy.sink_columns import sink_column_table

TOP = Path(__file__).parents[2]
README = (TOP / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("figures", markdown(json.loads((TOP / "benchmarks" / "results.json").read_text()))),
        ("source options", option_table(SOURCE_OPTIONS)),
        ("sink options", option_table(SINK_OPTIONS)),
        ("source columns", column_table()),
        ("sink columns", sink_column_table()),
    ],
)
def test_a_table_of_the_readme_is_the_codes(name: str, table: str) -> None:
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    found = README[README.index(begin) + len(begin) : README.index(end)].strip()
    assert found == table, f"put this between the marks of {name}:\n{table}"


def test_every_promise_of_the_readme_names_tests_that_are_there() -> None:
    begin, end = "<!-- promises -->", "<!-- end of promises -->"
    table = README[README.index(begin) : README.index(end)]
    named = re.findall(r"`(test_\w+)`", table)
    sources = "\n".join(path.read_text("utf-8") for path in (TOP / "tests").rglob("test_*.py"))
    there = set(re.findall(r"def (test_\w+)\(", sources))
    assert set(named) - there == set()
    rows = table.count("\n| ") - 1
    assert len(named) >= rows > 8

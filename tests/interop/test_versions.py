"""The versions of RocketMQ that tests run, and the tool that reports newer ones."""

from __future__ import annotations

import re

import pytest

from tests.interop.rocketmq import TOP, VERSIONS
from tests.interop.versions import POMS, artifacts_of, newer, served

PINS = ("5.5.0", "5.3.3", "4.9.7")


def test_makefile_poms_and_tests_have_the_same_versions() -> None:
    made = re.search(r"^ROCKETMQS := (.+)$", (TOP / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert made
    assert tuple(made[1].split()) == VERSIONS
    assert {path.parent.name for path in POMS.glob("*/pom.xml")} == {*VERSIONS}
    for version in VERSIONS:
        text = (POMS / version / "pom.xml").read_text("utf-8")
        artifacts = artifacts_of(version)
        assert {"rocketmq-broker", "rocketmq-tools"} <= {*artifacts}
        assert text.count(f"<version>{version}</version>") == len(artifacts)
    proxy = TOP / "tests" / "interop" / "apache_v2" / "proxy" / "pom.xml"
    assert f"<version>{VERSIONS[0]}</version>" in proxy.read_text("utf-8")


def test_a_version_counts_where_each_artifact_has_it() -> None:
    found = served(
        {
            "rocketmq-broker": ["5.3.3", "5.10.0", "5.5.0", "6.0.0-ALPHA", "5.5.1"],
            "rocketmq-tools": ["5.3.3", "5.5.0", "5.10.0"],
        }
    )
    assert list(found) == ["5.3.3", "5.5.0", "5.5.1", "5.10.0"]
    assert found["5.5.1"] == ["rocketmq-tools"]
    assert found["5.10.0"] == []


@pytest.mark.parametrize(
    ("pinned", "expected"),
    [
        ("5.5.0", ["5.5.1", "5.10.0"]),
        ("5.3.3", ["5.3.4"]),
        ("4.9.7", ["4.9.8"]),
    ],
)
def test_a_newer_one_is_of_its_line_and_of_any_for_the_newest(
    pinned: str, expected: list[str]
) -> None:
    versions = ["4.9.6", "4.9.7", "4.9.8", "5.0.0", "5.3.3", "5.3.4", "5.5.0", "5.5.1", "5.10.0"]
    assert newer(pinned, PINS, versions) == expected

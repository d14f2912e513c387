"""The manifest's file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocketpy_broker.store.files.manifest import Manifest
from rocketpy_broker.store.values import FilePrefix, QueueKey
from rocketpy_proto.record.crc import body_crc

PREFIXES = {"0": FilePrefix(40, 7), "6000000": FilePrefix(20, 4_000_000_000)}
MANIFEST = Manifest(
    1 << 40,
    1 << 30,
    6_000_000,
    1_700_000_000_000,
    {QueueKey('a "name"', 0): PREFIXES, QueueKey('a "name"', 3): {}, QueueKey("U", 1): PREFIXES},
    {"20231114221320000": FilePrefix(100, 1)},
    {"0": FilePrefix(8, 2)},
    (7, 1 << 39),
)


@pytest.mark.parametrize("manifest", [MANIFEST, Manifest(0, 1, 20, 0)])
def test_s09_a_manifest_comes_back_as_it_was_saved(manifest: Manifest, tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    manifest.save(path)
    assert Manifest.load(path) == manifest


def test_s09_the_file_is_json_with_the_checksum_of_its_own_text(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    MANIFEST.save(path)
    content = json.loads(path.read_bytes())
    assert path.read_text() == json.dumps(content)
    crc = content.pop("crc")
    assert crc == body_crc(json.dumps(content).encode())


def test_s09_a_manifest_that_was_altered_counts_as_none(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    MANIFEST.save(path)
    data = path.read_text()
    for altered in (data.replace("1099511627776", "1099511627777"), data[:-1], "", "[]"):
        path.write_text(altered)
        assert Manifest.load(path) is None

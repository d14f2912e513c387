"""State files of a backup: their content is that of the moment in which they were opened."""

from __future__ import annotations

from pathlib import Path

from rocketpy_broker.store.backup.live import StateFiles
from rocketpy_broker.store.files.checkpoint import StoreCheckpoint


def content_of(state: StateFiles, name: str) -> bytes:
    content = bytearray()
    for piece in state.pieces():
        if piece.path == name:
            content[:] = content.ljust(piece.file_bytes, b"\0")
            content[piece.offset : piece.offset + len(piece.data)] = piece.data
    return bytes(content)


def test_b13_a_checkpoint_that_is_saved_meanwhile_is_copied_as_it_was(tmp_path: Path) -> None:
    """Asserts it: later times are beyond the end of the copied log."""
    checkpoint = StoreCheckpoint(tmp_path / "checkpoint")
    checkpoint.logics_msg_timestamp_ms = 1_000
    checkpoint.save()
    before = (tmp_path / "checkpoint").read_bytes()
    state = StateFiles.of(tmp_path)
    try:
        checkpoint.logics_msg_timestamp_ms = 2_000
        checkpoint.save()
        assert (tmp_path / "checkpoint").read_bytes() != before
        assert content_of(state, "checkpoint") == before
    finally:
        state.close()


def test_b13_a_file_that_is_replaced_meanwhile_is_copied_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    path = tmp_path / "config" / "topics.json"
    path.write_bytes(b"old")
    state = StateFiles.of(tmp_path)
    try:
        (tmp_path / "new").write_bytes(b"newer")
        (tmp_path / "new").replace(path)
        assert content_of(state, "config/topics.json") == b"old"
    finally:
        state.close()

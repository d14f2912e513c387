"""`rocketpy store backup` of a store that no broker serves, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rocketpy_broker import LocalBroker
from rocketpy_broker.cli.commands import app
from rocketpy_broker.embedded.local_broker import LocalBrokerError
from rocketpy_broker.store.backup.offline import StoppedStore
from rocketpy_broker.store.backup.pieces import Piece
from rocketpy_broker.store.backup.target import BackupTarget, BackupTargetError
from tests.support.broker.shell import run

SEGMENT_BYTES = 4 << 20


def backup(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["store", "backup", *map(str, words)])


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the store of a stopped broker, with ten messages."""
    folder = tmp_path_factory.mktemp("stores") / "store"
    with LocalBroker(folder, commit_log_segment_bytes=SEGMENT_BYTES) as broker:
        broker.create_topic("T", 1)
        broker.send("T", [b"%d" % number for number in range(10)])
    (folder / "timerlog").mkdir()
    (folder / "timerlog" / "0").write_bytes(b"another broker's")
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.stat().st_size < 10_000_000
    }


def test_b13_a_stopped_store_is_copied_whole_and_stays_sparse(
    stopped: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    done = backup(stopped, copy)
    assert (done.exit_code, "copied" in done.output) == (0, True), done.output
    before, after = files_of(stopped), files_of(copy)
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    assert changed == {"rocketpy/recoveries"}
    taken = sum(path.stat().st_blocks * 512 for path in copy.rglob("*") if path.is_file())
    source = sum(path.stat().st_blocks * 512 for path in stopped.rglob("*") if path.is_file())
    assert taken <= source
    segment = f"commitlog/{0:020d}"
    assert (copy / segment).stat().st_mtime_ns == (stopped / segment).stat().st_mtime_ns
    assert not [path for path in [copy, *copy.rglob("*")] if path.stat().st_mode & 0o077]
    # A restore is a backup as well.
    again = backup(copy, tmp_path / "restored", "--json")
    told = json.loads(again.output)
    assert (told["folder"], told["faults"]) == (str(tmp_path / "restored"), [])
    with LocalBroker(tmp_path / "restored", commit_log_segment_bytes=SEGMENT_BYTES) as broker:
        assert len(broker.messages("T")) == 10


def test_b13_a_clone_is_a_store_of_its_own(stopped: Path, tmp_path: Path) -> None:
    identity = (stopped / "rocketpy" / "storeId").read_bytes()
    assert backup(stopped, tmp_path / "same").exit_code == 0
    assert (tmp_path / "same" / "rocketpy" / "storeId").read_bytes() == identity
    assert backup(stopped, tmp_path / "other", "--new-store-id").exit_code == 0
    other = (tmp_path / "other" / "rocketpy" / "storeId").read_bytes()
    assert (len(other), other == identity) == (len(identity), False)
    with LocalBroker(tmp_path / "other", commit_log_segment_bytes=SEGMENT_BYTES) as clone:
        live = tmp_path / "live"
        assert run(clone, "store", "backup", str(live), "--new-store-id").exit_code == 0
    assert (live / "rocketpy" / "storeId").read_bytes() not in {identity, other}


def test_b13_a_store_that_crashed_is_copied_as_it_was_left(tmp_path: Path) -> None:
    broker = LocalBroker(tmp_path / "store", commit_log_segment_bytes=SEGMENT_BYTES).start()
    broker.create_topic("T", 1)
    broker.send("T", "kept")
    broker.kill()
    assert backup(tmp_path / "store", tmp_path / "copy").exit_code == 0
    assert (tmp_path / "copy" / "abort").exists()
    with LocalBroker(tmp_path / "copy", commit_log_segment_bytes=SEGMENT_BYTES) as again:
        assert [message.body for message in again.messages("T")] == [b"kept"]


def test_b13_faults_of_the_source_are_told_and_the_copy_stays(
    stopped: Path, tmp_path: Path
) -> None:
    damaged = tmp_path / "damaged"
    assert backup(stopped, damaged).exit_code == 0
    with (damaged / f"commitlog/{0:020d}").open("r+b") as segment:
        segment.seek(95)
        segment.write(b"\xff\xff")
    done = backup(damaged, tmp_path / "copy")
    assert done.exit_code == 1
    assert "bytes of the log are damaged" in done.output
    assert "the copy has" in done.output
    assert (tmp_path / "copy" / "commitlog").is_dir()
    assert backup(damaged, tmp_path / "unchecked", "--no-check").exit_code == 0


def test_b13_what_lies_in_the_way_is_named_and_left_alone(stopped: Path, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    for place in (full, tmp_path / "file", tmp_path / "link", stopped):
        done = backup(stopped, place)
        assert (done.exit_code, "is there already" in done.output) == (2, True), done.output
    (tmp_path / "empty").mkdir()
    assert backup(stopped, tmp_path / "empty").exit_code == 0
    missing = backup(stopped, tmp_path / "no" / "copy")
    assert (missing.exit_code, "is no directory" in missing.output) == (2, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file", "full", "link"]
    assert (full / "mine").read_text() == "mine"


def test_b13_a_copy_into_its_own_store_is_refused(
    stopped: Path, tmp_path: Path, rocketpy_broker: LocalBroker
) -> None:
    inside = backup(stopped, stopped / "copy")
    assert (inside.exit_code, "or is inside it" in inside.output) == (2, True)
    assert not (stopped / "copy.unfinished").exists()
    served = run(rocketpy_broker, "store", "backup", str(rocketpy_broker.data / "copy"))
    assert (served.exit_code, "or is inside it" in served.output) == (2, True)


def test_b13_wrong_words_are_refused(tmp_path: Path, rocketpy_broker: LocalBroker) -> None:
    nothing = backup(tmp_path / "nothing", tmp_path / "copy")
    assert (nothing.exit_code, "is no store" in nothing.output) == (2, True)
    many = backup("a", "b", "c")
    assert (many.exit_code, "3 paths are given; give [SOURCE] DEST" in many.output) == (2, True)
    used = backup(rocketpy_broker.data, tmp_path / "copy")
    assert used.exit_code == 2
    said = "is in use by a running broker; name its --endpoint in place of SOURCE\n"
    assert used.output == f"rocketpy store: {rocketpy_broker.data} {said}"
    unreachable = backup(tmp_path / "copy", "--endpoint", "127.0.0.1:1")
    assert unreachable.exit_code == 1
    assert list(tmp_path.iterdir()) == []


def test_b13_two_copies_to_one_place_do_not_mix(tmp_path: Path) -> None:
    with BackupTarget(tmp_path / "copy"):
        with pytest.raises(BackupTargetError, match="another backup writes to"):
            BackupTarget(tmp_path / "copy").__enter__()
        assert (tmp_path / "copy.unfinished").exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x", "", "a//b", "a\0b", "./a"])
def test_b13_a_path_that_leads_out_of_the_copy_is_refused(tmp_path: Path, path: str) -> None:
    with BackupTarget(tmp_path / "copy") as target:
        target.begin(1)
        with pytest.raises(BackupTargetError, match="impossible path"):
            target.write(Piece(path, 0, b"x", 1, 0))
    assert list(tmp_path.iterdir()) == []


def test_b13_a_store_is_kept_from_brokers_while_it_is_copied(stopped: Path) -> None:
    with StoppedStore(stopped), pytest.raises(LocalBrokerError, match="in use by another broker"):
        LocalBroker(stopped, commit_log_segment_bytes=SEGMENT_BYTES).start()

"""`backup` and `restore`, as a person or a script runs them on a state directory."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import pytest

from dynamic_mcp.features.backup.archive import ArchivedFile, open_archive
from dynamic_mcp.features.backup.inventory import StateLocation
from dynamic_mcp.features.backup.restoration import Staged
from tests.cli.commands import CliRunner, CommandResult
from tests.features.backup import kept
from tests.features.backup.kept import PASSPHRASE, VARIABLE, fill, left_beside, marks_of, write
from tests.terminal import open_terminal
from tests.windows import is_private, is_wine, user_dir

pytestmark = pytest.mark.usefixtures("state")

ODD = ["../evil", "/etc/evil", "state/../../evil", "state", "state//x", "elsewhere/x/y", "other/x", "state/a\\b"]


@pytest.fixture
def run(cli: CliRunner, tmp_path: Path) -> CliRunner:
    """Runs commands with a cache of the test."""
    cli.configure({})
    return cli


def back_up(cli: CliRunner, file: Path, *options: str) -> CommandResult:
    done = cli.run("backup", str(file), *options, **{VARIABLE: PASSPHRASE})
    assert done.code == 0, done.err
    return done


def restore(cli: CliRunner, file: Path, *options: str, passphrase: str = PASSPHRASE) -> CommandResult:
    return cli.run("restore", str(file), *options, **{VARIABLE: passphrase})


@pytest.fixture
def backup(run: CliRunner, state: Path, tmp_path: Path) -> Path:
    """A backup of a state that is marked as old; the state is there."""
    fill(state)
    back_up(run, tmp_path / "backup")
    return tmp_path / "backup"


# --- what is in it ---------------------------------------------------------------------------------------------


def test_a_backup_brings_back_all_that_is_kept_and_nothing_that_is_passing(
    run: CliRunner, state: Path, backup: Path
) -> None:
    before = marks_of(state)
    shutil.rmtree(state)
    assert restore(run, backup).code == 0

    after = marks_of(state)
    passing = {"audit/lock", ".new-12", "scripts/x.script", "run/x", "cache-clear/y"}
    passing |= {"tasks/f.xml", "log/dynamic-mcp.log"}
    assert before.keys() - after.keys() == passing
    assert after == {name: mark for name, mark in before.items() if name not in passing}


def test_what_is_restored_is_private(run: CliRunner, state: Path, backup: Path) -> None:
    shutil.rmtree(state)
    restore(run, backup)
    for each in (backup, state, *state.rglob("*")):
        assert is_private(each), each


def test_nothing_of_it_is_readable_without_the_passphrase(backup: Path) -> None:
    data = backup.read_bytes()
    assert data.startswith(b"age-encryption.org/v1\n-> scrypt ")
    assert b"logins" not in data
    assert "state/logins/a.v1.json" in kept.names_in(backup)


def test_others_can_open_it_and_verify_it(backup: Path, tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(kept.decrypt(backup)), mode="r:gz") as tar:
        names = tar.getnames()
        tar.extractall(tmp_path / "opened", filter="data")
    assert (names[0], names[-1]) == ("backup.json", "SHA256SUMS")
    sums = [line.split("  ") for line in (tmp_path / "opened" / "SHA256SUMS").read_text().splitlines()]
    assert {name for _, name in sums} == {*names[1:-1]}
    for digest, name in sums:
        assert sha256((tmp_path / "opened" / name).read_bytes()).hexdigest() == digest


def test_a_backup_without_secrets_needs_no_passphrase(run: CliRunner, state: Path, tmp_path: Path) -> None:
    fill(state)
    done = run.run("backup", "plain", "--without-secrets")
    assert done.code == 0
    assert "not in it: logins, keys and other secrets" in done.err
    assert kept.names_in(tmp_path / "plain") == [
        "backup.json",
        "state/audit/open/1-aa.jsonl",
        "state/audit/seals.jsonl",
        "state/audit/2026-11-26.jsonl",
        "state/pins/c.json",
        "state/tokens/b.json",
        "state/tool-uses.json",
        "SHA256SUMS",
    ]


def test_a_backup_without_secrets_leaves_those_that_are_there(run: CliRunner, state: Path, tmp_path: Path) -> None:
    fill(state)
    run.run("backup", "plain", "--without-secrets")
    fill(state, "new")
    assert run.run("restore", "plain", "--overwrite").code == 0
    found = marks_of(state)
    assert found["clients/e.v3.sqlite"] == "new"
    assert json.loads(found["logins/a.v1.json"]) == {"mark": "new"}
    assert json.loads(found["tokens/b.json"]) == {"mark": "old"}


@pytest.mark.posix_only("such names")
def test_a_file_whose_name_cannot_be_restored_everywhere_is_left_out_and_the_rest_can_be_restored(
    run: CliRunner, state: Path, tmp_path: Path
) -> None:
    for name in ("a:b", "a\\b", "a\nb", "a\u2028b", "a\x85b"):
        write(state / "later" / name, "x")
    done = back_up(run, tmp_path / "backup")
    left_out = [line for line in done.err.splitlines() if line.startswith("not in it: ")]
    assert len(left_out) == 3
    assert restore(run, tmp_path / "backup", "--overwrite").code == 0
    assert {each.name for each in (state / "later").iterdir()} == {"a\u2028b", "a\x85b"}


def test_a_log_ends_with_its_last_whole_line(run: CliRunner, state: Path, tmp_path: Path) -> None:
    day = write(state / "audit" / "2026-11-27.jsonl", b'{"n":1}\n{"n":2}\n{"n":3')
    lines = b"x" * 99 + b"\n" + (b"y" * 1023 + b"\n") * 9000
    large = write(state / "audit" / "2026-11-26.jsonl", lines + b"z" * 200_000)
    back_up(run, tmp_path / "backup")
    shutil.rmtree(state)
    restore(run, tmp_path / "backup")
    assert day.read_bytes() == b'{"n":1}\n{"n":2}\n'
    assert large.stat().st_size == 100 + 9000 * 1024


def test_a_database_is_copied_with_what_is_not_in_its_file_yet(run: CliRunner, state: Path, tmp_path: Path) -> None:
    import sqlite3
    from contextlib import closing

    file = state / "clients" / "e.v3.sqlite"
    kept.write_database(file, "old")
    with closing(sqlite3.connect(file, isolation_level=None)) as writer:
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        writer.execute("UPDATE marks SET mark = 'committed'")
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE marks SET mark = 'not committed'")
        assert file.with_name(f"{file.name}-wal").stat().st_size > 0
        back_up(run, tmp_path / "backup")
        writer.execute("ROLLBACK")
    shutil.rmtree(state)
    restore(run, tmp_path / "backup")
    assert kept.read_database(file) == ["committed"]


def test_what_a_config_keeps_elsewhere_is_in_it_and_goes_where_the_config_says(
    run: CliRunner, state: Path, tmp_path: Path
) -> None:
    store = tmp_path / "shared.db"
    cluster = {"peers": "http://127.0.0.1:1", "keys": ["k" * 40], "store": f"sqlite:///{store}"}
    run.configure({}, settings={"audit": {"path": "record"}, "cluster": cluster})
    write(tmp_path / "record" / "key", "k" * 32)
    write(tmp_path / "record" / "2026-11-26.jsonl", "{}\n")
    write(state / "tokens" / "b.json", "{}")
    kept.write_database(store, "old")
    back_up(run, tmp_path / "backup")
    shutil.rmtree(tmp_path / "record")
    kept.write_database(store, "new")
    run.configure({}, settings={"audit": {"path": "moved"}, "cluster": cluster})

    assert restore(run, tmp_path / "backup", "--overwrite").code == 0
    assert (tmp_path / "moved" / "2026-11-26.jsonl").read_text() == "{}\n"
    assert kept.read_database(store) == ["old"]

    run.configure({})
    refused = restore(run, tmp_path / "backup", "--overwrite")
    assert refused.code == 1
    assert "which a config keeps beside the state directory" in refused.err


def test_secrets_in_the_keychain_are_said_not_to_be_in_it(run: CliRunner, state: Path, tmp_path: Path) -> None:
    write(state / "logins" / "a.v1.json", json.dumps({"is_in_keyring": True}))
    assert "the secrets of 1 login in the keychain" in back_up(run, tmp_path / "backup").err


def test_a_dry_run_says_what_would_be_in_it_and_writes_nothing(run: CliRunner, state: Path, tmp_path: Path) -> None:
    fill(state)
    done = run.run("backup", "backup", "--dry-run", "--json")
    assert done.json["folders"]["audit"] == 4
    assert not (tmp_path / "backup").exists()


def test_a_backup_goes_to_stdout_and_comes_from_stdin(run: CliRunner, state: Path, tmp_path: Path) -> None:
    fill(state)
    file = tmp_path / "through"
    with file.open("wb") as out:
        environment = run.environment(**{VARIABLE: PASSPHRASE})
        subprocess.run([*run.command("backup", "-")], stdout=out, env=environment, cwd=run.folder, check=True)
    shutil.rmtree(state)
    done = run.run("restore", "-", stdin=file.read_bytes(), **{VARIABLE: PASSPHRASE})
    assert done.code == 0, done.err
    assert "clients/e.v3.sqlite" in marks_of(state)


# --- the passphrase, and what is refused -----------------------------------------------------------------------


def test_the_passphrase_can_be_in_a_file(run: CliRunner, state: Path, tmp_path: Path) -> None:
    fill(state)
    write(tmp_path / "words", f"{PASSPHRASE}\n")
    assert run.run("backup", "backup", "--passphrase-file", "words").code == 0
    assert kept.decrypt(tmp_path / "backup")


@pytest.mark.posix_only("a terminal")
def test_a_person_types_a_new_passphrase_twice(run: CliRunner, state: Path, tmp_path: Path) -> None:
    fill(state)
    assert type_passphrases(run, "backup", PASSPHRASE, PASSPHRASE) == 0
    assert kept.decrypt(tmp_path / "backup")
    assert type_passphrases(run, "other", "one", "two") == 2
    assert not (tmp_path / "other").exists()


def type_passphrases(cli: CliRunner, file: str, first: str, second: str) -> int:
    """Back up on a terminal; return the exit code."""
    environment = cli.environment(TERM="xterm")
    with open_terminal("backup", file, env=environment, cwd=cli.folder) as person:
        person.shows("passphrase of the backup:")
        person.types(f"{first}\n".encode())
        person.shows("the same again:")
        person.types(f"{second}\n".encode())
        code = person.ends()
        assert first.encode() not in person.output
    return code


def test_without_a_passphrase_nothing_is_written(run: CliRunner, state: Path, tmp_path: Path) -> None:
    fill(state)
    done = run.run("backup", "backup")
    assert done.code == 2
    assert "--passphrase-file" in done.err
    assert done.err.count("--without-secrets") == 1
    assert not (tmp_path / "backup").exists()


def test_a_file_that_exists_is_replaced_only_if_one_says_so(run: CliRunner, backup: Path) -> None:
    before = backup.read_bytes()
    done = run.run("backup", str(backup), **{VARIABLE: PASSPHRASE})
    assert (done.code, backup.read_bytes()) == (2, before)
    back_up(run, backup, "--overwrite")


def test_a_backup_is_not_written_into_what_it_copies(run: CliRunner, state: Path) -> None:
    fill(state)
    done = run.run("backup", str(state / "backup"), **{VARIABLE: PASSPHRASE})
    assert (done.code, (state / "backup").exists()) == (2, False)


def test_without_state_there_is_nothing_to_back_up(run: CliRunner) -> None:
    done = run.run("backup", "backup", **{VARIABLE: PASSPHRASE})
    assert done.code == 1
    assert "nothing to back up" in done.err


def test_a_state_that_is_there_is_replaced_only_if_one_says_so(run: CliRunner, state: Path, backup: Path) -> None:
    fill(state, "new")
    before = marks_of(state)
    refused = restore(run, backup)
    assert refused.code == 2
    assert "--overwrite" in refused.err
    assert marks_of(state) == before

    done = restore(run, backup, "--overwrite")
    assert done.code == 0
    assert "valid again" in done.err
    after = marks_of(state)
    assert after["clients/e.v3.sqlite"] == "old"
    assert after.pop("log/dynamic-mcp.log") == "log of new\n", "the log is not state"
    assert after.pop("tasks/f.xml") == "new", "what this machine starts is not state"
    assert "new" not in after.values()
    assert not left_beside(state)


@pytest.mark.skipif(sys.platform != "win32", reason="elsewhere, what is open can be exchanged")
@pytest.mark.parametrize(
    "what",
    [
        pytest.param(
            "file", marks=pytest.mark.skipif(is_wine(), reason="Wine renames a directory with an open file")
        ),
        "directory",
    ],
)
def test_a_state_that_another_program_uses_stays_as_it_was(
    run: CliRunner, state: Path, backup: Path, what: str
) -> None:
    fill(state, "new")
    before = marks_of(state)
    with contextlib.ExitStack() as using:
        if what == "file":
            using.enter_context((state / "pins" / "c.json").open("rb"))
        else:
            using.enter_context(contextlib.chdir(state))
        done = restore(run, backup, "--overwrite")
    assert done.code == 1
    assert "another program uses it" in done.err
    assert marks_of(state) == before
    assert not left_beside(state)


def test_the_config_of_the_user_is_not_in_it_and_stays(run: CliRunner, state: Path, tmp_path: Path) -> None:
    config = write(user_dir(tmp_path / "home") / "dynamic-mcp.json", '{"mcpServers": {}}')
    fill(state)
    back_up(run, tmp_path / "backup")
    assert not [name for name in kept.names_in(tmp_path / "backup") if config.name in name]
    write(config, '{"mcpServers": {} }')
    assert restore(run, tmp_path / "backup", "--overwrite").code == 0
    assert config.read_text() == '{"mcpServers": {} }'


def test_another_passphrase_changes_nothing(run: CliRunner, state: Path, backup: Path) -> None:
    fill(state, "new")
    before = marks_of(state)
    done = restore(run, backup, "--overwrite", passphrase="wrong")
    assert done.code == 1
    assert "the passphrase is wrong" in done.err
    assert marks_of(state) == before


@pytest.mark.parametrize("is_plain", [False, True])
def test_a_damaged_backup_changes_nothing(run: CliRunner, state: Path, tmp_path: Path, *, is_plain: bool) -> None:
    fill(state)
    back_up(run, tmp_path / "backup", *(["--without-secrets"] if is_plain else []))
    fill(state, "new")
    before, whole = marks_of(state), (tmp_path / "backup").read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    for damaged in (bytes(flipped), whole[:-1], whole[: len(whole) // 2], whole[:20], b"", b"hello"):
        write(tmp_path / "damaged", damaged)
        done = restore(run, tmp_path / "damaged", "--overwrite")
        assert done.code == 1
        assert "Traceback" not in done.err
        assert "backup" in done.err
        assert marks_of(state) == before
    assert not left_beside(state)


def make_archive(file: Path, members: Sequence[tuple[tarfile.TarInfo, bytes]], **head: object) -> None:
    """Write an archive with these members, and checksums that are right."""
    sums = "".join(f"{sha256(data).hexdigest()}  {member.name}\n" for member, data in members)
    parts = [
        (tarfile.TarInfo("backup.json"), json.dumps(kept.head(**head)).encode()),
        *members,
        (tarfile.TarInfo("SHA256SUMS"), sums.encode()),
    ]
    with tarfile.open(file, "w:gz") as tar:
        for member, data in parts:
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


@pytest.mark.parametrize("name", ODD)
def test_files_with_other_places_are_refused(run: CliRunner, state: Path, tmp_path: Path, name: str) -> None:
    make_archive(tmp_path / "odd", [(tarfile.TarInfo(name), b"x")])
    done = restore(run, tmp_path / "odd")
    assert done.code == 1
    assert "the backup is refused" in done.err
    assert not state.exists()


@pytest.mark.parametrize("kind", [getattr(tarfile, f"{each}TYPE") for each in ("SYM", "LNK", "CHR", "FIFO", "DIR")])
def test_links_and_devices_are_refused(run: CliRunner, state: Path, tmp_path: Path, kind: bytes) -> None:
    member = tarfile.TarInfo("state/tokens/x")
    member.type, member.linkname = kind, "/etc/passwd"
    make_archive(tmp_path / "odd", [(member, b"")])
    done = restore(run, tmp_path / "odd")
    assert done.code == 1
    assert "the backup is refused" in done.err
    assert not state.exists()


def test_a_file_that_is_in_it_twice_is_refused(run: CliRunner, tmp_path: Path) -> None:
    make_archive(tmp_path / "odd", [(tarfile.TarInfo("state/x"), b"1"), (tarfile.TarInfo("state/x"), b"2")])
    assert "is in it twice" in restore(run, tmp_path / "odd").err


@pytest.mark.parametrize("changes", [{"format": 2}, {"version": "99.0.0"}])
def test_a_backup_of_a_newer_version_is_refused(run: CliRunner, tmp_path: Path, changes: dict[str, object]) -> None:
    make_archive(tmp_path / "newer", [(tarfile.TarInfo("state/x"), b"1")], **changes)
    done = restore(run, tmp_path / "newer")
    assert done.code == 1
    assert "made by a newer version" in done.err


def test_the_list_verifies_the_backup_and_changes_nothing(run: CliRunner, state: Path, backup: Path) -> None:
    shutil.rmtree(state)
    done = restore(run, backup, "--list")
    assert done.code == 0
    assert "state/clients/e.v3.sqlite" in [each["name"] for each in done.json["files"]]
    assert done.json["head"]["configs"] == [str(run.config)]
    assert not state.exists()


def test_who_restores_without_the_config_is_told(run: CliRunner, state: Path, backup: Path) -> None:
    shutil.rmtree(state)
    run.config.unlink()
    done = restore(run, backup)
    assert done.code == 0
    assert f"there is no `{run.config}`" in done.err


def test_a_restore_waits_for_what_cannot_be_seen_from_here(run: CliRunner, state: Path, backup: Path) -> None:
    file = write(state / "running" / "1234567.json", '{"pid": 1234567, "entry": {}}')
    before = marks_of(state)
    done = restore(run, backup, "--overwrite")
    assert done.code == 1
    # Windows tells nobody which processes run, so this one is taken to run
    said = "in use by process 1234567" if sys.platform == "win32" else "in use a moment ago, by process 1234567"
    assert said in done.err
    file.unlink(missing_ok=True)
    assert {**marks_of(state), "running/1234567.json": ""} == {**before, "running/1234567.json": ""}

    os.utime(write(file, "{}"), (0, 0))
    assert restore(run, backup, "--overwrite").code == 0


@pytest.mark.posix_only("a device")
def test_a_backup_takes_the_place_of_no_device(run: CliRunner, state: Path) -> None:
    fill(state)
    assert run.run("backup", "/dev/null", "--overwrite", "--without-secrets").code == 2


# --- a restore that is killed ----------------------------------------------------------------------------------

# Kills itself when it is about to write something to disk for the nth time.
_KILLED = """
import os, signal, sys
left, sync = int(sys.argv.pop(1)), os.fsync
def fsync(descriptor):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    sync(descriptor)
os.fsync = fsync
if sys.argv.pop(1) == "slow":
    sys.platform = "other"
from dynamic_mcp.__main__ import main
main()
"""


@pytest.mark.posix_only("a signal that kills")
@pytest.mark.parametrize("how", ["at once", "slow"])
def test_a_restore_that_is_killed_leaves_the_old_state_or_the_new_one(
    run: CliRunner, state: Path, tmp_path: Path, how: str
) -> None:
    name = write(state / "pins" / "a.json", "old").relative_to(state).as_posix()
    kept.write_database(state / "clients" / "b.sqlite", "old")
    run.run("backup", "backup", "--without-secrets")
    write(state / name, "new")
    write(state / "tokens" / "c.json", "new")
    new = {name: "new", "tokens/c.json": "new", "clients/b.sqlite": "old"}
    old = {name: "old", "clients/b.sqlite": "old"}
    seen: list[tuple[int, bool]] = []
    while not seen or seen[-1][0] == -signal.SIGKILL:
        command = [sys.executable, "-c", _KILLED, str(len(seen)), how, "restore", "backup", "--overwrite"]
        done = subprocess.run(command, env=run.environment(), cwd=run.folder, capture_output=True, check=False)
        found = marks_of(state)
        assert found in (old, new)
        seen.append((done.returncode, found == new))
    assert (-signal.SIGKILL, True) in seen
    assert seen[-1] == (0, False)
    assert not left_beside(state), "what was left is removed"


def test_a_state_that_was_put_aside_by_a_killed_restore_comes_back(run: CliRunner, state: Path, backup: Path) -> None:
    before = marks_of(state)
    state.rename(state.with_name(f".{state.name}.replaced-1"))
    (state.parent / f".{state.name}.restoring-1").mkdir()
    assert restore(run, backup, passphrase="wrong").code == 1
    assert marks_of(state) == before


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")
def test_nobody_but_root_gets_at_what_root_restores_before_it_is_whole(tmp_path: Path) -> None:
    """Its owner could put a link there, which root would follow."""
    state = tmp_path / "state"
    seen: list[tuple[int, int]] = []
    state.mkdir()
    os.chown(state, 12345, 12345)
    staged = Staged(StateLocation("state", state))
    staged.prepare()

    class Looking(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            places = (staged.path, staged.path / "a")
            seen.extend((each.stat().st_uid, each.stat().st_mode & 0o777) for each in places)
            return super().read(size)

    make_archive(tmp_path / "backup", [(tarfile.TarInfo("state/a/b"), b"x")])
    with (tmp_path / "backup").open("rb") as source, open_archive(source, lambda: "", ()) as archive:
        for file in archive.files():
            staged.add(archive, ArchivedFile(file.name, file.size, 0.0, Looking(file.content.read())))
    staged.take_place()
    assert set(seen) == {(0, 0o700)}
    assert [each.stat().st_uid for each in (state, state / "a", state / "a" / "b")] == [12345] * 3


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")
def test_root_restores_for_the_owner_of_the_state(run: CliRunner, state: Path, backup: Path) -> None:
    os.chown(state, 12345, 12345)
    assert restore(run, backup, "--overwrite").code == 0
    for each in (state, state / "tokens" / "b.json"):
        assert (each.stat().st_uid, each.stat().st_gid) == (12345, 12345)


def test_a_file_that_is_no_backup_is_refused_before_the_loss_of_what_is_there_is_asked_about(
    run: CliRunner, state: Path, tmp_path: Path
) -> None:
    fill(state)
    write(tmp_path / "other", "no backup")
    for file, why in (("missing", "cannot be read: no such file"), ("other", "is no backup of dynamic-mcp")):
        done = restore(run, tmp_path / file)
        assert why in done.err
        assert "has state" not in done.err

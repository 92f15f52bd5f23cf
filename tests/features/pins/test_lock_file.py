from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec import Raw

from dynamic_mcp.features.pins.definition import PinKind
from dynamic_mcp.features.pins.lock_file import (
    Pin,
    PinnedServer,
    PinSet,
    lock_store,
    path_for,
    read_lock,
    update_lock,
)
from dynamic_mcp.system.file_store import CorruptFile, NewerFile

PIN = Pin("h1:00", Raw(b'{"name":"get"}'), "2026-11-23")
SERVER = PinnedServer("digest", "1.4", tools={"get": PIN})


def pin_server(lock: PinSet) -> PinSet:
    return lock.with_server("github", SERVER)


def test_a_file_that_is_not_there_has_nothing(tmp_path: Path) -> None:
    assert read_lock(tmp_path / "none.json") == PinSet()


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "lock.json"
    update_lock(file, pin_server)
    found = read_lock(file).servers["github"].find(PinKind.TOOL, "get")
    assert found is not None
    assert (found.hash, found.first_seen) == (PIN.hash, PIN.first_seen)


def test_a_change_keeps_what_another_process_has_written_meanwhile(tmp_path: Path) -> None:
    file = tmp_path / "lock.json"
    update_lock(file, pin_server)
    update_lock(file, lambda lock: lock.with_server("other", SERVER))
    assert sorted(read_lock(file).servers) == ["github", "other"]


def test_a_file_is_the_same_in_whichever_order_things_came(tmp_path: Path) -> None:
    one = PinSet().with_server("a", SERVER).with_server("b", PinnedServer(tools={"x": PIN, "y": PIN}))
    other = PinSet().with_server("b", PinnedServer(tools={"y": PIN, "x": PIN})).with_server("a", SERVER)
    for name, lock in (("one", one), ("other", other)):
        lock_store(tmp_path / name).save(lock)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


@pytest.mark.skipif(os.name != "posix", reason="needs modes of files")
def test_a_file_of_the_state_directory_is_private_and_one_that_is_committed_keeps_its_mode(tmp_path: Path) -> None:
    private, committed = tmp_path / "private.json", tmp_path / "committed.json"
    lock_store(committed).save(PinSet())
    committed.chmod(0o644)
    for file in (private, committed):
        update_lock(file, pin_server)
    assert (private.stat().st_mode & 0o777, committed.stat().st_mode & 0o777) == (0o600, 0o644)


def test_a_file_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "lock.json"
    file.write_text('{"form": 2, "servers": ["something else"]}')
    before = file.read_bytes()
    with pytest.raises(NewerFile):
        update_lock(file, pin_server)
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    "content", ["", "{", "{}", "[]", '{"form": 1, "servers": 7}', "<<<<<<< ours\n", '{"form":"one"}', '{"form":0}']
)
def test_a_file_that_is_none_is_an_error_and_can_be_set_aside(tmp_path: Path, content: str) -> None:
    file = tmp_path / "lock.json"
    file.write_text(content)
    with pytest.raises(CorruptFile):
        read_lock(file)
    lock_store(file).set_aside()
    assert read_lock(file) == PinSet()
    assert file.with_suffix(".bad").read_text() == content


def test_a_directory_in_its_place_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CorruptFile):
        read_lock(tmp_path)


def test_each_config_has_a_file_of_its_own(tmp_path: Path) -> None:
    assert path_for(tmp_path / "a.json", tmp_path) != path_for(tmp_path / "b.json", tmp_path)

"""Files that a later start reads again: whole or not at all. What cannot be read is never lost or taken for empty."""

from __future__ import annotations

import math
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from dynamic_mcp.system.file_store import (
    CorruptFile,
    DictCodec,
    FileStore,
    JsonCodec,
    NewerFile,
    StoreError,
    prune_folder,
    stamp_of,
)

BOUND_S = 60.0
posix = pytest.mark.skipif(sys.platform == "win32", reason="file modes are a POSIX matter")


class Count(Struct, frozen=True):
    number: int = 0
    names: dict[str, int] = {}


CODEC = JsonCodec(Count, 2)


def store_in(folder: Path) -> FileStore[Count]:
    return FileStore(folder / "count.json", CODEC)


# --- reading and writing ------------------------------------------------------------------------------------------


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    store_in(tmp_path / "a" / "b").save(Count(7, {"ü": 1}))
    assert store_in(tmp_path / "a" / "b").load() == Count(7, {"ü": 1})


def test_without_a_file_there_is_no_value_and_no_stamp(tmp_path: Path) -> None:
    store = store_in(tmp_path / "nowhere")
    assert (store.load(), store.load_or_set_aside("the count in"), stamp_of(store.file)) == (None, None, None)
    assert list(tmp_path.iterdir()) == []


def test_a_stamp_changes_with_the_file(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    store.save(Count(1))
    before = stamp_of(store.file)
    store.save(Count(2))
    assert stamp_of(store.file) not in (None, before)


def test_the_content_is_the_same_in_whichever_order_things_came() -> None:
    assert CODEC.encode(Count(1, {"a": 1, "b": 2})) == CODEC.encode(Count(1, {"b": 2, "a": 1}))
    assert CODEC.encode(Count()).startswith(b'{\n  "form": 2,\n')


def test_a_type_without_members_has_its_number_all_the_same() -> None:
    class Nothing(Struct):
        pass

    codec = JsonCodec(Nothing, 1, member="format")
    assert codec.encode(Nothing()) == b'{\n  "format": 1\n}\n'
    codec.decode(codec.encode(Nothing()))


def test_a_dict_keeps_what_python_can_say() -> None:
    codec = DictCodec(1)
    value = {"nan": math.inf, "large": 10**40, "half": "\ud800", "path": "/\udcff"}
    assert codec.decode(codec.encode(value)) == {**value, "form": 1}


# --- what cannot be read ------------------------------------------------------------------------------------------

CORRUPT = [
    b"",
    b"{",
    b"null",
    b"[]",
    b"{}",
    b"\xff",
    b"[" * 100_000,
    b'{"number":1}',
    b'{"form":"2"}',
    b'{"form":1}',
    b'{"form":2,"number":"1"}',
]


@pytest.mark.parametrize("content", CORRUPT)
def test_a_corrupt_file_is_an_error_and_stays_as_it_is(tmp_path: Path, content: bytes) -> None:
    store = store_in(tmp_path)
    store.file.write_bytes(content)
    with pytest.raises(CorruptFile):
        store.load()
    assert store.file.read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"7", b"{}", b"\xff", b"[" * 100_000, b'{"form":"1"}'])
def test_a_corrupt_dict_is_an_error(tmp_path: Path, content: bytes) -> None:
    store = FileStore(tmp_path / "note.json", DictCodec(1))
    store.file.write_bytes(content)
    with pytest.raises(CorruptFile):
        store.load()


@pytest.mark.parametrize("content", [*CORRUPT, b'{"form":3}'])
def test_a_file_that_cannot_be_used_is_set_aside_with_a_warning_if_that_is_wanted(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    store = store_in(tmp_path)
    store.file.write_bytes(content)
    assert store.load_or_set_aside("the count in") is None
    assert [file.name for file in tmp_path.iterdir()] == ["count.bad"]
    assert (tmp_path / "count.bad").read_bytes() == content
    assert "the count in count.json cannot be read and is set aside: " in caplog.text
    store.save(Count(1))
    assert store.load_or_set_aside("the count in") == Count(1)


@pytest.mark.parametrize(
    ("codec", "content"),
    [(CODEC, b'{"form":3,"number":["something else"]}'), (DictCodec(1), b'{"form":2,"what":[]}')],
)
def test_a_file_of_a_newer_version_is_another_error(tmp_path: Path, codec: Any, content: bytes) -> None:
    # Any: a codec of either type
    store = FileStore[object](tmp_path / "x.json", codec)
    store.file.write_bytes(content)
    with pytest.raises(NewerFile, match="written by a newer version of dynamic-mcp"):
        store.load()
    assert store.file.read_bytes() == content


def test_a_good_file_that_another_process_has_written_meanwhile_is_not_set_aside(tmp_path: Path) -> None:
    class Slow:
        """Reads for so long that the file is replaced meanwhile."""

        def encode(self, value: Count) -> bytes:
            return CODEC.encode(value)

        def decode(self, data: bytes) -> Count:
            store_in(tmp_path).save(Count(2))
            return CODEC.decode(data)

    store = FileStore(store_in(tmp_path).file, Slow())
    store.file.write_bytes(b"{")
    assert store.load_or_set_aside("the count in") is None
    assert store_in(tmp_path).load() == Count(2)


def test_a_directory_in_its_place_is_set_aside(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    store.file.mkdir()
    assert store.load_or_set_aside("the count in") is None
    store.save(Count(1))
    assert store.load() == Count(1)


def test_what_would_be_too_large_to_read_is_neither_read_nor_written(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "count.json", CODEC, most_bytes=100)
    store.save(Count(1))
    with pytest.raises(OSError, match="larger than 100 bytes"):
        store.save(Count(1, {"x" * 100: 1}))
    assert store.load() == Count(1)
    store.file.write_bytes(CODEC.encode(Count(1, {"x" * 100: 1})))
    with pytest.raises(CorruptFile, match="larger than 100 bytes"):
        store.load()


# --- whose it is --------------------------------------------------------------------------------------------------


@posix
def test_a_private_file_is_for_its_owner_alone_and_made_so_when_it_is_read(tmp_path: Path) -> None:
    store = store_in(tmp_path / "folder")
    store.save(Count(1))
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (store.file, store.file.parent)]
    store.file.chmod(0o644)
    store.load()
    assert (modes, stat.S_IMODE(store.file.stat().st_mode)) == ([0o600, 0o700], 0o600)


@posix
def test_no_link_in_the_place_of_a_private_file_is_followed(tmp_path: Path) -> None:
    elsewhere = FileStore(tmp_path / "elsewhere", CODEC)
    elsewhere.save(Count(1))
    store = store_in(tmp_path)
    store.file.symlink_to(elsewhere.file)
    with pytest.raises(OSError, match="symbolic links"):
        store.load()
    store.save(Count(2))
    assert (elsewhere.load(), store.load(), store.file.is_symlink()) == (Count(1), Count(2), False)


@posix
def test_a_file_of_the_user_keeps_its_mode_and_may_be_read_through_a_link(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "count.json", CODEC, is_private=False)
    store.save(Count(1))
    assert stat.S_IMODE(store.file.stat().st_mode) == 0o600
    store.file.chmod(0o640)
    store.save(Count(2))
    (tmp_path / "link").symlink_to(store.file)
    assert FileStore(tmp_path / "link", CODEC, is_private=False).load() == Count(2)
    assert stat.S_IMODE(store.file.stat().st_mode) == 0o640


# --- others at work, and ends in the middle -----------------------------------------------------------------------

ADD = """
import sys
from pathlib import Path
from tests.system.test_file_store import Count, store_in

store = store_in(Path(sys.argv[1]))
for _ in range(50):
    with store.locked(60):
        before = store.load() or Count()
        store.save(Count(before.number + 1), durable=False)
"""

END_BEFORE_THE_RENAMING = """
import os, sys
from pathlib import Path
from tests.system.test_file_store import Count, store_in

sys.addaudithook(lambda event, _: os._exit(7) if event == "os.rename" else None)
store_in(Path(sys.argv[1])).save(Count(2))
"""


def start(script: str, folder: Path) -> subprocess.Popen[bytes]:
    root = Path(__file__).parents[2]
    return subprocess.Popen([sys.executable, "-c", script, folder], cwd=root)


def test_two_processes_that_change_it_at_once_lose_nothing(tmp_path: Path) -> None:
    running = [start(ADD, tmp_path) for _ in range(2)]
    assert [each.wait(BOUND_S) for each in running] == [0, 0]
    assert store_in(tmp_path).load() == Count(100)


def test_a_process_that_ends_before_the_file_is_replaced_leaves_the_old_one(tmp_path: Path) -> None:
    store_in(tmp_path).save(Count(1))
    assert start(END_BEFORE_THE_RENAMING, tmp_path).wait(BOUND_S) == 7
    assert store_in(tmp_path).load() == Count(1)
    store_in(tmp_path).save(Count(3))
    assert store_in(tmp_path).load() == Count(3)


def test_a_lock_that_another_one_holds_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    with (
        store_in(tmp_path).locked(0),
        pytest.raises(TimeoutError, match="another process keeps it locked"),
        store_in(tmp_path).locked(0),
    ):
        pass
    with store_in(tmp_path).locked(0):
        pass


def test_a_folder_that_cannot_be_written_is_an_error_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = store_in(tmp_path / "file" / "folder")
    with pytest.raises(OSError, match="file"):
        store.save(Count(1))
    with pytest.raises(OSError, match="file"), store.locked(0):
        pass
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everything")
def test_the_old_file_stays_where_no_new_one_can_be_written(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    store.save(Count(1))
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(PermissionError):
            store.save(Count(2))
        assert store.load() == Count(1)
    finally:
        tmp_path.chmod(0o700)


def test_an_error_says_nothing_of_what_is_in_the_file(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    store.file.write_bytes(b'{"form":2,"number":"SECRET"}')
    with pytest.raises(StoreError) as caught:
        store.load()
    assert "SECRET" not in str(caught.value)


# --- a folder of them ---------------------------------------------------------------------------------------------


def test_the_oldest_files_of_a_folder_go_when_there_are_too_many_or_too_much(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / str(number)).write_bytes(b"x" * 10)
        os.utime(tmp_path / str(number), (number, number))
    prune_folder(tmp_path, most_files=5)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["1", "2", "3", "4", "5"]
    prune_folder(tmp_path, most_files=5, most_bytes=29)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["4", "5"]

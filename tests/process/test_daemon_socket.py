"""The socket of a daemon: where it may be, and to whom a window talks. Attacks on it are in `tests/attacks/`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dynamic_mcp import __version__
from dynamic_mcp.face import frames
from dynamic_mcp.system import private_socket
from tests.hosting import daemons
from tests.process.neighbours import assert_alive
from tests.process.windows import pid_of, save, socket_of, windows_of
from tests.program import BOUND_S, Json, odd, running

pytestmark = [
    pytest.mark.daemon_only,
    pytest.mark.posix_only(
        "they look for daemons in /proc and signal them; face/test_shared_daemon.py is for Windows too"
    ),
]

NOBODY = 65534
SECRET = "s3cret-of-the-environment"
as_root = pytest.mark.skipif(sys.platform == "win32" or os.getuid() != 0, reason="needs root, to act as another user")


@pytest.fixture
def runtime() -> Path:
    """The runtime directory of this test, in which the daemons have a folder."""
    return Path(os.environ["XDG_RUNTIME_DIR"])


async def assert_shared(tmp_path: Path) -> None:
    """Two windows of a config have one daemon, and its server."""
    file = save(tmp_path, {"odd": odd()})
    async with windows_of(file, 2) as windows:
        assert len(set(await asyncio.gather(*(pid_of(each, "odd") for each in windows)))) == 1
        assert len(daemons()) == 1


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


# --- where it is -----------------------------------------------------------------------------------------------


async def test_the_socket_and_its_folder_are_this_users_alone(tmp_path: Path, runtime: Path) -> None:
    before = os.umask(0)
    try:
        file = save(tmp_path, {"odd": odd()})
        async with windows_of(file, 1) as (program,):
            await assert_alive(program, "odd")
            assert mode_of(runtime / "dynamic-mcp") == 0o700
            assert {each.name: oct(mode_of(each)) for each in (runtime / "dynamic-mcp").iterdir()} == {
                socket_of(file).with_suffix(suffix).name: oct(0o600) for suffix in (".sock", ".lock", ".start")
            }
        assert not socket_of(file).exists()
    finally:
        os.umask(before)


async def test_no_value_of_the_environment_is_in_any_file_of_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODD_SECRET", SECRET)
    monkeypatch.setenv("DYNAMIC_MCP_LOG", "debug")
    servers = {"odd": odd(inherit_env="all"), "bad": odd("exit_at_start", inherit_env="all")}
    async with windows_of(save(tmp_path, servers), 2) as windows:
        for program in windows:
            await assert_alive(program, "odd")
            assert SECRET in str(await program.call("odd", "env"))
            assert SECRET not in str(await program.call("bad", "echo"))
        async with asyncio.timeout(BOUND_S):
            while not any("running" in each.parts for each in written_files()):  # noqa: ASYNC110 - raises no event
                await asyncio.sleep(0.01)
        assert not [each for each in written_files() if SECRET.encode() in each.read_bytes()]


def written_files() -> list[Path]:
    """Return all that the daemon has written: its log, its entry among the running proxies, catalogs."""
    folders = [Path(os.environ[f"XDG_{name}_HOME"]) for name in ("STATE", "CACHE")]
    return [each for folder in folders for each in folder.rglob("*") if each.is_file()]


@pytest.mark.parametrize("suffix", [".sock", ".lock", ".start"])
async def test_what_a_killed_daemon_has_left_is_in_nobodys_way(tmp_path: Path, runtime: Path, suffix: str) -> None:
    (runtime / "dynamic-mcp").mkdir(mode=0o700)
    path = socket_of(tmp_path / "dynamic-mcp.json").with_suffix(suffix)
    if suffix == ".sock":
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(path))
    else:
        path.write_text("4194304\n")
    await assert_shared(tmp_path)


async def test_a_socket_that_was_removed_is_made_anew_by_another_daemon_and_both_serve(tmp_path: Path) -> None:
    file = save(tmp_path, {"odd": odd()})
    async with windows_of(file, 1) as (old,):
        await assert_alive(old, "odd")
        socket_of(file).unlink()
        socket_of(file).with_suffix(".lock").unlink()
        async with windows_of(file, 1) as (new,):
            await assert_alive(new, "odd")
            assert len(daemons()) == 2
        await assert_alive(old, "odd")
        assert len(daemons()) >= 1


def spoil(how: str, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a runtime directory such that no socket may be in it."""
    ours = runtime / "dynamic-mcp"
    match how:
        case "missing":
            monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime / "none" / "here"))
        case "relative":
            monkeypatch.setenv("XDG_RUNTIME_DIR", "relative")
        case "too long":
            long = runtime / ("x" * 100)
            long.mkdir(mode=0o700)
            monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
        case "a file":
            ours.write_text("in the way")
        case "a link":
            (runtime / "elsewhere").mkdir(mode=0o700)
            ours.symlink_to(runtime / "elsewhere")
        case "open to a group":
            ours.mkdir()
            ours.chmod(0o770)
        case "another's":
            ours.mkdir(mode=0o700)
            os.chown(ours, NOBODY, NOBODY)
        case "read-only":
            ours.mkdir(mode=0o700)
            ours.chmod(0o500)


@pytest.mark.parametrize(
    "how",
    [
        "missing",
        "relative",
        "too long",
        "a file",
        "a link",
        "open to a group",
        pytest.param("another's", marks=as_root),
        pytest.param(
            "read-only",
            marks=pytest.mark.skipif(
                sys.platform == "win32" or os.getuid() == 0, reason="root may write to every directory"
            ),
        ),
    ],
)
def test_where_the_runtime_directory_is_of_no_use_the_socket_has_a_private_folder_elsewhere(
    runtime: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    spoil(how, runtime, monkeypatch)
    path = Path(private_socket.place(os.environ, "x.sock"))
    assert not path.is_relative_to(runtime)
    assert mode_of(path.parent) == 0o700


@pytest.mark.parametrize(
    "how", ["missing", *(pytest.param(how, marks=pytest.mark.full) for how in ("too long", "a file", "a link"))]
)
async def test_where_the_runtime_directory_is_of_no_use_windows_share_a_daemon_all_the_same(
    tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    spoil(how, runtime, monkeypatch)
    await assert_shared(tmp_path)
    assert not sockets_below(runtime)


def sockets_below(folder: Path) -> list[Path]:
    return list(folder.rglob("*.sock"))


@pytest.mark.parametrize("mode", [pytest.param(0o700, marks=pytest.mark.full), 0o770])
async def test_a_runtime_directory_that_is_a_link_or_a_groups_has_a_private_folder_in_it(
    tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    real = runtime / "real"
    real.mkdir()
    real.chmod(mode)
    (runtime / "link").symlink_to(real)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime / "link"))
    await assert_shared(tmp_path)
    assert mode_of(real / "dynamic-mcp") == 0o700


def test_directories_of_the_system_are_not_created(tmp_path: Path) -> None:
    gone = tmp_path / "run" / "user" / "7"
    environment = {"XDG_RUNTIME_DIR": str(gone)}
    assert not private_socket.place(environment, "x.sock").startswith(str(gone))
    assert not gone.exists()


# --- who may connect -------------------------------------------------------------------------------------------

# Listens as another user, at a socket that exists already, because that user may not enter the folder.
LISTEN_AS_NOBODY = f"""
import os, socket, sys
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
server = socket.socket(fileno=int(sys.argv[1]))
server.listen()
print("listens", flush=True)
client, _ = server.accept()
print(client.recv(99), flush=True)
"""


@as_root
def test_a_window_does_not_talk_to_the_daemon_of_another_user(runtime: Path) -> None:
    path = runtime / "planted.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        number = server.fileno()
        command = [sys.executable, "-c", LISTEN_AS_NOBODY, str(number)]
        planted = subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=[number])
    with planted:
        assert planted.stdout is not None
        assert planted.stdout.readline() == b"listens\n"
        assert private_socket.connect_to(str(path)) is None
        assert planted.stdout.readline() == b"b''\n"


# --- what is no window -----------------------------------------------------------------------------------------


def _hello(file: Path, **members: Json) -> bytes:
    return frames.hello(b"session", os.fsencode(file), version=__version__.encode(), **members)


async def test_a_connection_that_says_nothing_neither_disturbs_the_windows_nor_keeps_the_daemon(
    tmp_path: Path,
) -> None:
    file = save(tmp_path, {"odd": odd()})
    async with windows_of(file, 1) as (program,):
        await assert_alive(program, "odd")
        silent = [await asyncio.open_unix_connection(socket_of(file)) for _ in range(50)]
        silent[0][1].write(_hello(file)[:10])
        await assert_alive(program, "odd")
    for reader, writer in silent:
        async with asyncio.timeout(BOUND_S):
            with contextlib.suppress(ConnectionResetError):  # so ends one of which something was not read
                assert await reader.read() == b""
        writer.close()


async def test_a_program_of_another_directory_is_served_by_the_daemon_of_the_config_that_it_means(
    tmp_path: Path,
) -> None:
    file = save(tmp_path, {"odd": {**odd(), "cwd": str(tmp_path)}})
    below = tmp_path / "below"
    below.mkdir()
    async with windows_of(file, 1) as (one,), running("../dynamic-mcp.json", cwd=below) as other:
        await other.initialize()
        assert await pid_of(one, "odd") == await pid_of(other, "odd")

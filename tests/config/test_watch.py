"""However the watched config is saved, its final content arrives once, and nothing else does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from dynamic_mcp.config import form, watch
from dynamic_mcp.config.read import ConfigState, ParsedConfig, ServedConfig, read_all
from dynamic_mcp.config.resolved import Broken, Config, Program
from dynamic_mcp.config.watch import ConfigWatcher, directories_of
from dynamic_mcp.config.workspace import Workspace
from dynamic_mcp.errors import ConfigError
from tests.fakes import until_read

BOUND_S = 15.0
Save = Callable[[Path, str], None]


class Recorder:
    """Records the configs and errors of a watcher."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.served = ServedConfig(read_all(file, {}))
        self.served.listeners.append(self._reload)
        self.configs: list[Config] = []
        self.errors: list[ConfigError] = []
        self.repairs = 0
        self.watcher = ConfigWatcher(
            self.served,
            {},
            on_error=self._on_error,
            on_repair=self._on_repair,
        )
        self._change = asyncio.Event()

    async def wait_for_config(self, name: str) -> Config:
        """Wait for the config with only this server."""
        await self.wait_until(
            lambda: bool(self.configs) and [each.name for each in self.configs[-1].groups] == [name]
        )
        return self.configs[-1]

    async def wait_for_errors(self, times: int = 1) -> None:
        await self.wait_until(lambda: len(self.errors) >= times)

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(BOUND_S):
            while not condition():
                await self._change.wait()
                self._change.clear()

    def enter(self, workspace: Workspace) -> None:
        """Serve a workspace too, with the version that is served."""
        self.served.add_workspace(workspace, self.served.state.parsed.resolve_for(workspace))
        self.watcher.check_soon()

    def _reload(self, old: ConfigState, new: ConfigState) -> None:
        self.configs.append(new.base)
        self._change.set()

    def _on_error(self, error: ConfigError) -> None:
        self.errors.append(error)
        self._change.set()

    def _on_repair(self) -> None:
        self.repairs += 1
        self._change.set()


@contextlib.asynccontextmanager
async def watching(file: Path) -> AsyncIterator[Recorder]:
    """Watch a config until the end of the block."""
    recorder = Recorder(file)
    task = asyncio.create_task(recorder.watcher.run())
    try:
        yield recorder
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def servers(*names: str, **members: object) -> str:
    return json.dumps({"mcpServers": {name: {"command": "x", **members} for name in names}})


def in_place(file: Path, text: str) -> None:
    file.write_text(text)


def by_rename(file: Path, text: str) -> None:
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


def with_backup(file: Path, text: str) -> None:
    file.replace(file.with_suffix(".bak"))
    file.write_text(text)


def delete_and_create(file: Path, text: str) -> None:
    file.unlink()
    file.write_text(text)


def in_halves(file: Path, text: str) -> None:
    with file.open("w") as out:
        for piece in (text[:9], text[9:]):
            out.write(piece)
            out.flush()


def in_a_new_directory(file: Path, text: str) -> None:
    file.unlink()
    file.parent.rmdir()
    file.parent.mkdir()
    file.write_text(text)


STYLES: list[Save] = [in_place, by_rename, with_backup, delete_and_create, in_halves, in_a_new_directory]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a config with one server, in a directory of its own."""
    path = tmp_path / "etc" / "dynamic-mcp.json"
    path.parent.mkdir()
    path.write_text(servers("first"))
    return path


# Row 49 of the fault matrix.


@pytest.mark.parametrize(
    "save",
    [
        *STYLES[:-1],
        pytest.param(
            in_a_new_directory,
            marks=pytest.mark.not_in_wine(
                "the name of a removed directory is in use while it is watched; Windows 10 frees it at once"
            ),
        ),
    ],
)
async def test_every_way_to_save_arrives_and_so_does_the_next_save(file: Path, save: Save) -> None:
    async with watching(file) as recorder:
        for name in ("second", "third", "fourth"):
            save(file, servers(name))
            await recorder.wait_for_config(name)
        assert recorder.errors == []
        assert len(recorder.configs) == 3


async def test_who_waits_for_the_present_content_waits_for_no_other(file: Path) -> None:
    async with asyncio.timeout(BOUND_S), watching(file) as recorder:
        await recorder.watcher.catch_up()
        assert recorder.configs == []
        in_place(file, servers("second"))
        await recorder.watcher.catch_up()
        assert [each.name for each in recorder.configs[-1].groups] == ["second"]
        in_place(file, "{")
        await recorder.watcher.catch_up()
        assert len(recorder.errors) == 1


# Row 51 of the fault matrix.


async def test_of_a_hundred_saves_the_last_wins(file: Path) -> None:
    async with watching(file) as recorder:
        for number in range(100):
            STYLES[number % 2](file, servers(f"s{number}"))
        await recorder.wait_for_config("s99")
        assert len(recorder.configs) < 10
        assert recorder.errors == []


# Row 49 of the fault matrix.


@pytest.mark.posix_only("symbolic links need a privilege on Windows")
async def test_the_data_link_of_kubernetes_is_followed_swap_after_swap(tmp_path: Path) -> None:
    def swap(name: str) -> None:
        (tmp_path / name).mkdir()
        (tmp_path / name / "dynamic-mcp.json").write_text(servers(name))
        (tmp_path / "..data_tmp").symlink_to(name)
        (tmp_path / "..data_tmp").replace(tmp_path / "..data")

    swap("one")
    file = tmp_path / "dynamic-mcp.json"
    file.symlink_to("..data/dynamic-mcp.json")
    async with watching(file) as recorder:
        for name in ("two", "three"):
            swap(name)
            await recorder.wait_for_config(name)


@pytest.mark.posix_only("symbolic links need a privilege on Windows")
async def test_a_write_to_what_a_link_leads_to_arrives(tmp_path: Path, file: Path) -> None:
    link = tmp_path / "home" / "mcp.json"
    link.parent.mkdir()
    link.symlink_to(file)
    async with watching(link) as recorder:
        by_rename(file, servers("second"))
        await recorder.wait_for_config("second")


@pytest.mark.posix_only("symbolic links need a privilege on Windows")
async def test_a_directory_that_is_a_link_may_lead_elsewhere(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "c.json").write_text(servers(name))
    current = tmp_path / "current"
    current.symlink_to("one")
    async with watching(current / "c.json") as recorder:
        (tmp_path / "next").symlink_to("two")
        (tmp_path / "next").replace(current)
        await recorder.wait_for_config("two")


async def test_an_env_file_counts_as_the_config_does(file: Path) -> None:
    env = file.parent / "x.env"
    env.write_text("A=1")
    in_place(file, servers("first", env_file="x.env"))
    async with watching(file) as recorder:
        by_rename(env, "A=2")
        assert _env(await recorder.wait_for_config("first")) == "2"


async def test_an_env_file_that_a_save_names_is_watched_from_then_on(tmp_path: Path, file: Path) -> None:
    (tmp_path / "other").mkdir()
    env = tmp_path / "other" / "x.env"
    env.write_text("A=1")
    async with watching(file) as recorder:
        in_place(file, servers("second", env_file=str(env)))
        await recorder.wait_for_config("second")
        in_place(env, "A=2")
        await recorder.wait_until(lambda: _env(recorder.configs[-1]) == "2")


async def test_an_env_file_of_a_workspace_counts_as_soon_as_the_workspace_is_known(file: Path) -> None:
    in_place(file, servers("first", env_file="${NAME:-base}.env"))
    env = file.parent / "mine.env"
    env.write_text("A=1")
    async with watching(file) as recorder:
        workspace = Workspace("/work", {"NAME": "mine"})
        recorder.enter(workspace)
        by_rename(env, "A=2")
        await recorder.wait_until(lambda: _env(recorder.served.state.by_workspace[workspace]) == "2")
        assert isinstance(recorder.served.state.base.groups[0].upstream, Broken)


@pytest.mark.posix_only("a pipe of a shell has no name on Windows")
async def test_a_workspace_that_comes_while_a_new_version_is_read_gets_it_too(file: Path) -> None:
    reader, writer = os.pipe()
    async with watching(file) as recorder:
        in_place(file, servers("second", env_file=f"/dev/fd/{reader}"))
        await until_read(reader, writer)
        late = Workspace("/late", {})
        recorder.enter(late)
        os.close(writer)

        config = await recorder.wait_for_config("second")

        assert [each.name for each in recorder.served.state.by_workspace[late].groups] == ["second"]
        assert config.groups[0].name == "second"
    os.close(reader)


async def test_the_same_content_is_no_change(file: Path) -> None:
    async with watching(file) as recorder:
        os.chmod(file, 0o600)  # noqa: PTH101 - the Path method is taken for blocking
        os.utime(file)
        by_rename(file, servers("first"))
        in_place(file, servers("second"))
        await recorder.wait_for_config("second")
        assert len(recorder.configs) == 1


# Row 48 of the fault matrix.


async def test_a_wrong_config_is_refused_once_and_the_next_good_one_is_taken(file: Path) -> None:
    async with watching(file) as recorder:
        in_place(file, "{")
        await recorder.wait_for_errors()
        os.utime(file)
        by_rename(file, "{")
        recorder.watcher.reload()
        by_rename(file, servers("second"))
        await recorder.wait_for_config("second")
        assert len(recorder.errors) == 1
        assert len(recorder.configs) == 1
        assert recorder.repairs == 1


async def test_each_wrong_content_is_refused_by_itself(file: Path) -> None:
    async with watching(file) as recorder:
        for times, text in enumerate(("{", '{"mcpServers": 1}', ""), start=1):
            in_place(file, text)
            await recorder.wait_for_errors(times)
        assert "is empty" in str(recorder.errors[-1])


async def test_a_config_that_stays_away_is_refused_once_and_may_come_back(file: Path) -> None:
    async with watching(file) as recorder:
        os.remove(file)  # noqa: PTH107 - the Path method is taken for blocking
        await recorder.wait_for_errors()
        assert "does not exist" in str(recorder.errors[0])
        in_place(file, servers("second"))
        await recorder.wait_for_config("second")
        assert len(recorder.errors) == 1


async def test_what_was_saved_before_the_watch_began_is_taken(file: Path) -> None:
    recorder = Recorder(file)
    in_place(file, servers("second"))
    task = asyncio.create_task(recorder.watcher.run())
    await recorder.wait_for_config("second")
    task.cancel()
    await asyncio.wait([task])


async def test_where_nothing_can_be_watched_the_content_is_read_instead(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from dynamic_mcp.config import directory_watcher

    def no_more(self: object, directories: object) -> bool:
        raise OSError(28, "inotify watch limit reached")

    monkeypatch.setattr(directory_watcher.DirectoryWatcher, "watch", no_more)
    monkeypatch.setattr(watch, "POLL_S", 0.05)
    async with watching(file) as recorder:
        for name in ("second", "third"):
            in_place(file, servers(name))
            await recorder.wait_for_config(name)
    assert caplog.text.count("cannot be watched") == 1


@pytest.mark.posix_only("named pipes of Windows are not in the file system")
async def test_a_config_from_a_pipe_is_not_read_twice(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    config = Config(file=pipe, groups=(), presentations={}, warnings=(), max_message_bytes=1)
    served = ServedConfig(ConfigState(ParsedConfig(pipe, form.root({"mcpServers": {}})), config))
    served.listeners.append(unexpected)
    unheard = ConfigWatcher(served, {}, on_error=unexpected)
    async with asyncio.timeout(BOUND_S):
        await unheard.run()


def test_nothing_is_loaded_before_something_is_watched() -> None:
    code = "import sys, dynamic_mcp.cli.commands.serve; print('watchdog' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.posix_only("symbolic links need a privilege on Windows")
def test_every_link_on_the_way_has_its_directory_watched(tmp_path: Path) -> None:
    real = tmp_path.resolve()
    for name in ("a", "b", "c"):
        (real / name).mkdir()
    (real / "c" / "config").write_text("{}")
    (real / "b" / "dir").symlink_to("../c")
    (real / "a" / "config").symlink_to(real / "b" / "dir" / "config")

    assert directories_of([real / "a" / "config"]) == {real / "a", real / "b", real / "c"}


def unexpected(*what: object) -> None:
    pytest.fail(f"not to be called: {what}")


def _env(config: Config) -> object:
    program = config.groups[0].upstream
    assert isinstance(program, Program)
    return program.env.get("A")

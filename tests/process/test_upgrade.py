"""The program is replaced while it runs: windows go on with the new version, and others say what to do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import dynamic_mcp
from dynamic_mcp.config.location import identify
from dynamic_mcp.system import paths
from dynamic_mcp.ui.links import PageLinks
from tests.hosting import daemon_log, wait_for_daemons, wait_for_end
from tests.http_program import serving_http
from tests.journeys.remote_server import free_port
from tests.process.http_client import connected
from tests.process.windows import has_received, logs, pid_of, save
from tests.program import BOUND_S, Program, odd, running, text_of
from tests.web import web_client

if sys.platform != "win32":
    import venv

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="files of a running program cannot be replaced on Windows"
)


class Package:
    """A copy of this program that a test may replace, first on the path of the programs that it starts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._home = folder.parent
        self.install("1.0.0")

    def install(self, version: str) -> None:
        """Put this version in place of the one that is there, as an installer does."""
        new = self._home / f"version-{version}"
        source = Path(str(dynamic_mcp.__file__)).parent
        unfinished = shutil.ignore_patterns("*.pyc.*")  # what another process compiles just now
        shutil.copytree(source, new / "dynamic_mcp", ignore=unfinished)
        schema = source.parent / "schemas" / "dynamic-mcp.schema.json"
        if schema.exists():  # an installed package has it already
            shutil.copy(schema, new / "dynamic_mcp")
        (new / "dynamic_mcp" / "__init__.py").write_text(f'"""A copy."""\n\n__version__ = "{version}"\n')
        link = self._home / "link"
        link.symlink_to(new)
        link.replace(self.folder)

    def remove(self) -> None:
        """Remove it, as an installer does first."""
        self.folder.unlink()

    @contextlib.asynccontextmanager
    async def window(self, config: Path) -> AsyncIterator[Program]:
        """Open a window of this program."""
        env = {"PYTHONPATH": str(self.folder)}
        async with running(str(config), env=env, cwd=self._home) as program:
            yield program


class PipPackage(Package):
    """An environment into which pip installs wheels of this program; a version 2 has moved some of its modules."""

    def __init__(self, home: Path) -> None:
        self._env = home / "env"
        venv.create(self._env, symlinks=True)
        (folder,) = self._env.glob("lib/*/site-packages")
        self._wheels = home / "wheels"
        super().__init__(folder)

    def install(self, version: str) -> None:
        """Install this version with pip, which removes the one before."""
        wheel = self._build(version)
        command = [sys.executable, "-m", "pip", "--python", str(self._env / "bin" / "python"), "install"]
        options = ["-q", "--no-deps", "--no-index", "--no-warn-script-location"]
        subprocess.run([*command, *options, str(wheel)], check=True, timeout=BOUND_S)

    def _build(self, version: str) -> Path:
        source = self._wheels / version
        root = Path(str(dynamic_mcp.__file__)).parent.parent
        shutil.copytree(root / "dynamic_mcp", source / "dynamic_mcp", ignore=shutil.ignore_patterns("*.pyc*"))
        for folder in ("schemas", "deploy/chart"):
            shutil.copytree(root / folder, source / folder)
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(root / name, source)
        (source / "dynamic_mcp" / "__init__.py").write_text(f'"""A copy."""\n\n__version__ = "{version}"\n')
        if version.startswith("2"):
            (source / "dynamic_mcp" / "system").rename(source / "dynamic_mcp" / "base")
            for file in (source / "dynamic_mcp").rglob("*.py"):
                text = file.read_text()
                file.write_text(text.replace("dynamic_mcp.system", "dynamic_mcp.base"))
        builder = pytest.importorskip("hatchling.builders.wheel", reason="`hatchling` is not installed").WheelBuilder
        (wheel,) = builder(str(source)).build(directory=str(self._wheels), versions=["standard"])
        return Path(wheel)


@pytest.fixture
def pip_package(tmp_path: Path) -> PipPackage:
    pytest.importorskip("pip", reason="`pip` is not installed")
    return PipPackage(tmp_path)


@pytest.fixture
def package(tmp_path: Path) -> Package:
    return Package(tmp_path / "installed")


def check_now(daemon: int) -> None:
    """Have a daemon look at its files now, as it does by itself every few seconds."""
    os.kill(daemon, signal.SIGHUP)


@pytest.mark.daemon_only
async def test_the_windows_of_a_daemon_go_on_with_a_daemon_of_the_new_version(
    tmp_path: Path, package: Package
) -> None:
    file = save(tmp_path, {"odd": odd()})
    async with package.window(file) as one, package.window(file) as two:
        for each in (one, two):
            assert (await each.initialize())["result"]["serverInfo"]["version"] == "1.0.0"
        before, old = await pid_of(one, "odd"), one.host
        package.install("2.0.0")
        check_now(old)
        async with asyncio.timeout(BOUND_S):
            while "a new daemon takes over" not in daemon_log():  # noqa: ASYNC110 - a file raises no event
                await asyncio.sleep(0.01)
            for each in (one, two):  # the old one may still answer what comes before it has let go of a window
                while await pid_of(each, "odd") == before:
                    pass
        assert await pid_of(one, "odd") == await pid_of(two, "odd")
        assert one.host != old
        await wait_for_daemons(one.host)
        for each in (one, two):
            each.assert_answered_once()


@pytest.mark.daemon_only
async def test_a_call_in_flight_ends_before_the_daemon_hands_over(tmp_path: Path, package: Package) -> None:
    file = save(tmp_path, {"odd": odd()})
    async with package.window(file) as program:
        await program.initialize()
        held = asyncio.create_task(program.call("odd", "hold", {"key": "k"}))
        await has_received(program, "odd", '"hold"')
        package.install("2.0.0")
        check_now(program.host)
        await logs("a new daemon takes over")
        assert text_of(await program.call("odd", "release", {"key": "k"})) == "1"
        assert text_of(await held) == "released"
        assert await pid_of(program, "odd")


@pytest.mark.daemon_only
async def test_a_daemon_serves_on_while_an_installer_has_removed_the_program_and_not_yet_written_it(
    tmp_path: Path, package: Package
) -> None:
    file = save(tmp_path, {"odd": odd(validate="strict")})
    async with package.window(file) as program:
        await program.initialize()
        before, daemon = await pid_of(program, "odd"), program.host
        package.remove()
        check_now(daemon)
        assert await pid_of(program, "odd") == before
        assert program.host == daemon
        assert "no tool" in text_of(await program.call("odd", "no_such_tool"))  # which needs what is seldom needed


@pytest.mark.daemon_only
async def test_a_daemon_that_is_killed_during_an_upgrade_is_followed_by_the_new_version(
    tmp_path: Path, package: Package
) -> None:
    file = save(tmp_path, {"odd": odd()})
    async with package.window(file) as program:
        await program.initialize()
        before = await pid_of(program, "odd")
        package.install("2.0.0")
        os.kill(program.host, signal.SIGKILL)
        await program.request("ping")  # which is answered once there is another daemon
        assert await pid_of(program, "odd") != before
        program.assert_answered_once()


@pytest.mark.daemon_only
async def test_a_call_that_needs_a_daemon_again_after_an_upgrade_is_answered_by_the_new_version(
    tmp_path: Path, package: Package
) -> None:
    file = save(tmp_path, {"odd": odd()})
    async with package.window(file) as program:
        await program.initialize()
        before = await pid_of(program, "odd")
        os.kill(program.host, signal.SIGTERM)
        await wait_for_daemons()
        package.install("2.0.0")
        assert await pid_of(program, "odd") != before
        program.assert_answered_once()


@pytest.mark.daemon_only
async def test_a_daemon_that_serves_http_without_a_window_starts_one_of_the_new_version(
    tmp_path: Path, package: Package
) -> None:
    port = free_port()
    # not the `linger` with which tests wait for the end of the daemon
    file = save(tmp_path, {"odd": odd()}, linger="0.001s", http={"listen": port})
    async with package.window(file) as program:
        await program.initialize()
        await program.says("over HTTP at")
        daemon = program.host
    package.install("2.0.0")
    check_now(daemon)
    await asyncio.to_thread(wait_for_end, daemon, BOUND_S)
    async with connected(f"http://127.0.0.1:{port}/mcp") as client:
        assert text_of(await client.call("odd", "echo", {"text": "still there"})) == "still there"
    save(tmp_path, {"odd": odd()}, linger="0.001s")
    await wait_for_daemons()


@pytest.mark.alone_only("one that serves HTTP has no daemon that it could hand over to")
async def test_http_is_served_on_without_the_files_and_each_new_session_too(
    tmp_path: Path, package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "installed"))
    monkeypatch.chdir(tmp_path)  # `-m` looks there first
    async with serving_http(tmp_path, {"odd": odd()}, "--log-level", "debug") as program:
        await program.has_loaded()
        package.remove()
        async with connected(program.url) as client:
            assert text_of(await client.call("odd", "echo", {"text": "still there"})) == "still there"
            assert "error" in await client.request("resources/read", {"uri": "file:///none"})
        assert "a bug" not in program.log()


@pytest.mark.alone_only("one that serves HTTP has no daemon that it could hand over to")
async def test_a_page_that_was_opened_is_whole_without_the_files(
    tmp_path: Path, package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "installed"))
    monkeypatch.chdir(tmp_path)  # `-m` looks there first
    async with serving_http(tmp_path, {}) as program, web_client(follow_redirects=True, trust_env=False) as web:
        secret = PageLinks(paths.state_dir()).create(identify(tmp_path / "dynamic-mcp.json"))
        first = await web.get(f"{program.own_origin}/ui/login?link={secret}")
        package.remove()

        pages = [await web.get(f"{program.own_origin}/ui{path}") for path in ("/tools", "/clients", "/access")]

        assert [each.status_code for each in (first, *pages)] == [200] * 4


@pytest.mark.alone_only("a daemon hands over")
async def test_a_program_that_lacks_a_part_of_itself_says_that_it_was_upgraded(
    tmp_path: Path, package: Package
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"mcpServers": {"odd": odd()}}))
    async with package.window(file) as program:
        await program.initialize()
        file.write_text(json.dumps({"mcpServers": {"odd": odd(), "b": odd(), "c": odd()}}))
        await program.hears("notifications/tools/list_changed")  # the config is watched by now
        package.install("2.0.0")
        # the first server at a URL needs the modules for those
        file.write_text(json.dumps({"mcpServers": {"odd": odd(), "far": {"url": "http://127.0.0.1:9/mcp"}}}))
        await program.says("has changed: 2 groups")
        answer = await program.call("far", "any")
        assert "was upgraded: restart it" in text_of(answer)
        assert await pid_of(program, "odd")


@pytest.mark.full
@pytest.mark.daemon_only
async def test_windows_go_on_while_pip_installs_a_version_whose_modules_were_moved(
    tmp_path: Path, pip_package: PipPackage
) -> None:
    file = save(tmp_path, {"odd": odd()})
    async with pip_package.window(file) as one, pip_package.window(file) as two:
        for each in (one, two):
            assert (await each.initialize())["result"]["serverInfo"]["version"] == "1.0.0"
        old = one.host
        installing = asyncio.create_task(asyncio.to_thread(pip_package.install, "2.0.0"))
        while not installing.done():
            assert text_of(await one.call("odd", "echo", {"text": "meanwhile"})) == "meanwhile"
        await installing
        with contextlib.suppress(ProcessLookupError):  # it has looked by itself
            check_now(old)
        await logs("a new daemon takes over")
        async with pip_package.window(file) as three:
            assert (await three.initialize())["result"]["serverInfo"]["version"] == "2.0.0"
            pids = {text_of(await each.call("odd", "pid")) for each in (one, two, three)}
        assert len(pids) == 1
        for each in (one, two):
            each.assert_answered_once()


@pytest.mark.full
@pytest.mark.alone_only("one that serves HTTP has no daemon that it could hand over to")
async def test_http_goes_on_while_pip_installs_a_version_whose_modules_were_moved(
    tmp_path: Path, pip_package: PipPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(pip_package.folder))
    monkeypatch.chdir(tmp_path)  # `-m` looks there first
    async with serving_http(tmp_path, {"odd": odd()}, "--log-level", "debug") as program:
        await program.has_loaded()
        await asyncio.to_thread(pip_package.install, "2.0.0")
        async with connected(program.url) as client:
            assert text_of(await client.call("odd", "echo", {"text": "still there"})) == "still there"
            assert "error" in await client.request("resources/read", {"uri": "file:///none"})
        assert "a bug" not in program.log()

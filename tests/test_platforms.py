"""What other systems do otherwise, as far as it can be told on this one: the platform's name is exchanged."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dynamic_mcp.cli.proxy_status import ProcessInfo, parse_ps, read_processes
from dynamic_mcp.cli.runner import run
from dynamic_mcp.doctor.files import check_file
from dynamic_mcp.observe import log_output
from dynamic_mcp.observe.log_output import LogFile, find_log_files
from dynamic_mcp.observe.proxies import SILENT_S, ProxyRegistry
from tests.observe.test_proxies import start_publishing


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")


@pytest.mark.usefixtures("windows")
async def test_windows_knows_a_running_proxy_by_its_heartbeat_and_signals_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await start_publishing(ProxyRegistry(tmp_path), tmp_path)
    signalled: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: signalled.append(pid))
    written = os.stat(tmp_path / f"{os.getpid()}.json").st_mtime  # noqa: PTH116
    assert [each.pid for each in ProxyRegistry(tmp_path, now=lambda: written + 1).list_proxies()] == [os.getpid()]
    assert ProxyRegistry(tmp_path, now=lambda: written + SILENT_S + 1).list_proxies() == []
    assert signalled == []
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.usefixtures("windows")
def test_windows_rotates_the_log_without_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_output, "MAX_FILE_BYTES", 50)
    monkeypatch.setitem(sys.modules, "fcntl", None)  # importing it fails
    log = LogFile(tmp_path)
    for number in range(10):
        log.write(f'{{"n": {number}, "pad": "xxxxxxxxxxxxxxxxxxxx"}}\n')
    assert len(find_log_files(tmp_path)) > 1


def test_a_log_that_is_open_elsewhere_and_cannot_be_moved_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, target: Path) -> None:
        raise PermissionError(13, "the file is used by another process")

    monkeypatch.setattr(log_output, "MAX_FILE_BYTES", 50)
    monkeypatch.setattr(Path, "replace", refuse)
    log = LogFile(tmp_path)
    for number in range(10):
        log.write(f'{{"n": {number}, "pad": "xxxxxxxxxxxxxxxxxxxx"}}\n')
    (file,) = find_log_files(tmp_path)
    assert len(file.read_text().splitlines()) == 10


@pytest.mark.usefixtures("windows")
def test_windows_has_no_mode_bits_to_warn_of(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text(json.dumps({"mcpServers": {}}))
    file.chmod(0o666)
    _, findings = check_file(file, {})
    assert [finding.level for finding in findings] == ["ok"]


@pytest.mark.usefixtures("windows")
def test_windows_lists_no_processes_and_leaves_ctrl_c_to_the_runner() -> None:
    async def work() -> str:
        assert signal.getsignal(signal.SIGINT) is not signal.SIG_DFL
        return "done"

    assert read_processes() == {}
    assert run(work()) == "done"


def test_macos_lists_processes_as_ps_does() -> None:
    assert parse_ps("    1     0  9000\n  345     1   120\n") == {
        1: ProcessInfo(0, 9000 << 10),
        345: ProcessInfo(1, 120 << 10),
    }


@pytest.mark.parametrize(
    ("platform", "where"), [("darwin", "Library/Logs/dynamic-mcp"), ("linux", ".local/state/dynamic-mcp/log")]
)
def test_each_system_keeps_the_log_where_logs_are_kept(tmp_path: Path, platform: str, where: str) -> None:
    code = f"import sys; sys.platform = {platform!r}; from dynamic_mcp.system import paths; print(paths.log_dir())"
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(tmp_path / where)


def test_windows_serves_each_client_alone_and_says_once_that_there_is_no_daemon(tmp_path: Path) -> None:
    config = tmp_path / "dynamic-mcp.json"
    config.write_text('{"mcpServers": {}, "settings": {"daemon": true}}')
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    code = (
        "import asyncio, sys; from dynamic_mcp.cli import startup; from dynamic_mcp.cli.main import run\n"
        "sys.platform = 'win32'\n"
        "sys.exit(run(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(config)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(runtime)},
        input='{"jsonrpc":"2.0","id":1,"method":"ping"}\n',
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert json.loads(done.stdout) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert done.stderr.count("`settings.daemon` is not supported on Windows") == 1
    assert not list(runtime.iterdir())

"""What other systems do otherwise, as far as it can be told on this one: the platform's name is exchanged."""

from __future__ import annotations

import ast
import asyncio
import ctypes
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import dynamic_mcp
from dynamic_mcp.cli.machine import local_machine
from dynamic_mcp.cli.runner import run
from dynamic_mcp.cli.wizard import split_words
from dynamic_mcp.config.addresses import TcpAddress
from dynamic_mcp.doctor.files import check_file
from dynamic_mcp.doctor.listening import check_address
from dynamic_mcp.features.approvals.store import ApprovalStore
from dynamic_mcp.features.audit import days
from dynamic_mcp.features.audit.chain import AuditLine
from dynamic_mcp.features.audit.check import check_audit
from dynamic_mcp.features.audit.config import Audit
from dynamic_mcp.features.audit.journal import CallJournal
from dynamic_mcp.features.metrics import definitions
from dynamic_mcp.features.metrics.gauges import process_families
from dynamic_mcp.importer.formats import files
from dynamic_mcp.observe import log_output
from dynamic_mcp.observe.log_output import LogFile, find_log_files
from dynamic_mcp.observe.proxies import SILENT_S, ProxyRegistry
from dynamic_mcp.system import acl, paths, private_socket
from dynamic_mcp.system.file_reader import read_private
from dynamic_mcp.system.os_user import os_user
from dynamic_mcp.system.prctl import forbid_inspection
from dynamic_mcp.system.processes import ProcessInfo, parse_ps, read_processes
from dynamic_mcp.system.shell import quote
from tests.features.approvals.queue_server import waiting
from tests.journeys.remote_server import free_port
from tests.observe.test_proxies import start_publishing
from tests.program import BOUND_S, odd

ROOT = Path(dynamic_mcp.__file__).parent
# Where the package asks which system it runs on, other than in the default of a parameter `platform`, and how often.
# A place that is added needs a test here, or beside those of its module.
BRANCHES = {
    "asgi.py": 1,
    "cli/daemon_control.py": 3,  # these, and those of `face`: tests/face, under Windows
    "cli/daemon_service.py": 4,
    "cli/direct_server.py": 1,  # passes it on
    "cli/keys.py": 1,
    "cli/main.py": 2,
    "cli/output.py": 2,
    "system/own_program.py": 2,
    "cli/runner.py": 2,
    "cli/startup.py": 1,  # refuses workers
    "cli/system_service.py": 3,  # is for systemd
    "config/location.py": 1,
    "config/needs.py": 5,  # passes it on
    "config/read.py": 2,  # passes it on
    "doctor/files.py": 2,
    "doctor/listening.py": 1,
    "face/daemon_connection.py": 2,
    "face/listener.py": 2,
    "face/pipe_listener.py": 1,  # cannot be imported on another system
    "face/shim.py": 4,
    "face/window.py": 4,
    "face/window_streams.py": 1,  # cannot be imported on another system
    "face/http/server.py": 2,  # refuses such an address before
    "features/approvals/notices.py": 3,
    "features/approvals/store.py": 1,
    "features/audit/check.py": 2,
    "features/audit/days.py": 3,
    "features/backup/restoration.py": 3,  # owners and directories, which Windows has not; and an exchange of Linux
    "features/metrics/gauges.py": 1,
    "features/metrics/listener.py": 1,  # for workers, which are refused before
    "features/metrics/workers.py": 1,
    "features/registry/config.py": 1,  # passes it on
    "features/sandbox/bubblewrap.py": 1,  # cannot be imported on another system, as the two below
    "features/sandbox/container.py": 1,  # cannot be imported on Windows
    "features/sandbox/confinement.py": 2,  # the config refuses it before
    "features/sandbox/landlock.py": 1,
    "features/sandbox/launching.py": 1,
    "features/sandbox/network.py": 1,
    "features/sandbox/wrapping.py": 2,  # tests/features/scripts/test_confined_scripts.py exchanges it
    "features/scan/commands/scanning.py": 1,  # passes it on
    "features/scan/runner.py": 1,  # passes it on
    "host/supervisor.py": 1,  # cannot be imported on another system
    "host/http_service.py": 1,
    "importer/formats/files.py": 1,
    "importer/planner.py": 1,  # passes it on
    "observe/proxies.py": 1,
    "host/signals.py": 2,
    "system/acl.py": 1,  # tested on Windows only
    "system/console_events.py": 1,  # cannot be imported on another system
    "system/database_file.py": 1,
    "system/file_reader.py": 2,
    "system/job.py": 1,  # cannot be imported on another system
    "system/named_pipe.py": 1,  # cannot be imported on another system
    "system/os_user.py": 1,
    "system/paths.py": 4,
    "system/pipes.py": 5,
    "system/prctl.py": 1,
    "system/private_socket.py": 5,
    "system/processes.py": 2,
    "upstream/process/child.py": 1,  # chooses between the next two
    "upstream/process/group.py": 1,  # cannot be imported on Windows, as the guardian and strays
    "upstream/process/guardian.py": 1,
    "upstream/process/job.py": 1,  # cannot be imported on another system
    "upstream/process/strays.py": 1,
}
# The program as it is on Windows. What the interpreter decides about its own system is loaded before.
ON_WINDOWS = """
import asyncio, shutil, sys, click, platformdirs, rich.console
from dynamic_mcp.cli import daemon_control, daemon_service, keys, startup
from dynamic_mcp.cli.main import run
from dynamic_mcp.face import daemon_connection, listener, shim
from dynamic_mcp.host import signals
from dynamic_mcp.system import acl, paths, pipes, private_socket
from dynamic_mcp.upstream.process import child
shutil.which = lambda program, *_, **__: program  # would ask Windows which names are those of programs
sys.platform = "win32"
sys.exit(run(sys.argv[1:]))
"""


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(ctypes, "WinDLL", lambda name: SimpleNamespace(GetUserNameW=_tell_user), raising=False)


def _tell_user(buffer: ctypes.Array[ctypes.c_wchar], size: object) -> bool:
    buffer.value = "bob"
    return True


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
def test_windows_lists_no_processes() -> None:
    assert read_processes() == {}


@pytest.mark.usefixtures("windows")
def test_ctrl_c_on_windows_cancels_a_command_for_a_reason() -> None:
    before, reasons = signal.getsignal(signal.SIGINT), []

    async def work() -> None:
        signal.raise_signal(signal.SIGINT)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as exc:
            reasons.append(str(exc))
            raise

    with pytest.raises(KeyboardInterrupt):
        run(work())
    assert reasons == ["interrupted at the terminal"]
    assert signal.getsignal(signal.SIGINT) == before


def test_macos_lists_processes_as_ps_does() -> None:
    assert parse_ps("    1     0  9000\n  345     1   120\n") == {
        1: ProcessInfo(0, 9000 << 10),
        345: ProcessInfo(1, 120 << 10),
    }


@pytest.mark.posix_only("other systems have other paths, and a home of another name")
@pytest.mark.parametrize(
    ("platform", "where"), [("darwin", "Library/Logs/dynamic-mcp"), ("linux", ".local/state/dynamic-mcp/log")]
)
def test_each_system_keeps_the_log_where_logs_are_kept(tmp_path: Path, platform: str, where: str) -> None:
    code = f"import sys; sys.platform = {platform!r}; from dynamic_mcp.system import paths; print(paths.log_dir())"
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(tmp_path / where)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": {"odd": odd()}, "settings": {"daemon": True}}))
    (tmp_path / "runtime").mkdir(mode=0o700)
    return file


def run_on_windows(config: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run the program as it is on Windows."""
    return subprocess.run(
        [sys.executable, "-c", ON_WINDOWS, *args],
        env={**os.environ, "XDG_RUNTIME_DIR": str(config.parent / "runtime"), "DYNAMIC_MCP_CONFIG": str(config)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )


@pytest.mark.parametrize("args", [("check",), ("doctor",), ("status",), ("tools",), ("logs",)])
def test_commands_do_without_a_daemon_on_windows(config: Path, args: tuple[str, ...]) -> None:
    done = run_on_windows(config, *args)
    assert done.returncode == 0, done.stderr
    assert not list((config.parent / "runtime").iterdir())


@pytest.mark.posix_only("there are no modes and owners that could be changed")
@pytest.mark.usefixtures("windows")
def test_windows_changes_no_modes_and_owners(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    paths.claim_private_dir(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    file = tmp_path / "secret"
    file.write_text("s")
    file.chmod(0o644)
    assert read_private(file) == b"s"
    os.close(days.open_private(file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


@pytest.mark.usefixtures("windows")
def test_windows_has_no_mode_bits_to_warn_of_in_the_audit_log(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    assert [finding.level for finding in check_audit(Audit(path=tmp_path), tmp_path)] == ["ok"]


@pytest.mark.usefixtures("windows")
def test_windows_warns_of_an_audit_log_that_is_open_to_others_by_its_access_control_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everyone = ("Everyone",)
    monkeypatch.setattr(acl, "find_others", lambda path: acl.OtherUsers(everyone, everyone))
    open_to_others, _ = check_audit(Audit(path=tmp_path), tmp_path)
    assert (open_to_others.level, open_to_others.what) == ("warning", f"{tmp_path} is open to Everyone")
    assert open_to_others.hint.startswith(f'`icacls "{tmp_path}" /inheritance:r ')
    monkeypatch.setattr(acl, "find_others", lambda path: acl.OtherUsers(owner="bob"))
    (owned,) = check_audit(Audit(path=tmp_path), tmp_path)
    assert (owned.level, owned.what) == ("error", f"{tmp_path} belongs to bob, who can change the log")


@pytest.mark.usefixtures("windows")
def test_windows_says_which_files_a_file_system_without_access_control_lists_leaves_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acl, "are_kept", lambda path: False)
    file = tmp_path / "c.json"
    file.write_text(json.dumps({"mcpServers": {}}))
    _, (_, finding) = check_file(file, {})
    assert (finding.level, finding.hint) == ("warning", "keep it on a drive with NTFS")
    (refused,) = check_audit(Audit(path=tmp_path), tmp_path)
    assert (refused.level, refused.hint) == ("error", "give a `path` on NTFS")
    with pytest.raises(PermissionError, match="lets everyone use everything"):
        paths.claim_private_dir(tmp_path)


@pytest.mark.usefixtures("windows")
def test_windows_takes_approvals_from_files_without_modes(tmp_path: Path) -> None:
    store = ApprovalStore(tmp_path)
    store.create(waiting("7F3K2M"))
    (tmp_path / "7F3K2M.json").chmod(0o666)
    assert store.read("7F3K2M") is not None


@pytest.mark.usefixtures("windows")
def test_windows_knows_no_limit_of_descriptors_and_no_way_to_forbid_inspection() -> None:
    assert definitions.MAX_DESCRIPTORS not in [family.definition for family in process_families()]
    assert not forbid_inspection()


def test_a_port_that_is_in_use_is_not_shared_on_windows_where_the_option_would_do_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    where = TcpAddress("127.0.0.1", free_port())
    monkeypatch.setattr(sys, "platform", "win32")
    options: list[int] = []
    monkeypatch.setattr(socket.socket, "setsockopt", lambda self, level, option, value: options.append(option))
    assert list(check_address("http", where, is_served=False)) == []
    assert socket.SO_REUSEADDR not in options


@pytest.mark.posix_only("Python for Windows has no Unix sockets")
def test_macos_tells_who_is_at_the_other_end_of_a_socket() -> None:
    asked: list[tuple[int, int]] = []

    class Connection(socket.socket):
        def getsockopt(self, level: int, option: int, size: int = 0) -> bytes:  # type: ignore[override]
            asked.append((level, option))
            # struct xucred begins with its version, then the user; LOCAL_PEERPID is the process
            return (7).to_bytes(4, sys.byteorder) + (501).to_bytes(4, sys.byteorder)

    with Connection() as connection:
        assert private_socket.peer_user(connection, "darwin") == 501
        assert private_socket.peer_process(connection, "darwin") == 7
    assert asked == [(0, 1), (0, 2)]


@pytest.mark.posix_only("users have numbers")
@pytest.mark.parametrize(("platform", "has_default"), [("linux", True), ("darwin", False)])
def test_sockets_are_in_the_runtime_directory_of_systemd_on_linux_only(platform: str, *, has_default: bool) -> None:
    places = list(private_socket.directories({}, platform))
    assert any(each.startswith("/run/user/") for each in places) == has_default


@pytest.mark.parametrize(
    ("platform", "quoted"), [("linux", "a '$b c'"), ("darwin", "a '$b c'"), ("win32", 'a "$b c"')]
)
def test_words_are_quoted_for_the_shell_of_the_system(platform: str, quoted: str) -> None:
    assert quote("a", "$b c", platform=platform) == quoted


def test_a_typed_command_keeps_the_backslashes_of_a_path_on_windows() -> None:
    typed = r"""C:\bin\server.exe "C:\my files" x"""
    assert split_words(typed, "win32") == [r"C:\bin\server.exe", r"C:\my files", "x"]
    assert split_words(r'''a\ b "c d"''', "linux") == ["a b", "c d"]


@pytest.mark.parametrize(
    ("platform", "known"), [("linux", "linux"), ("freebsd14", "linux"), ("darwin", "darwin"), ("win32", "win32")]
)
def test_tools_keep_their_files_on_a_bsd_where_they_do_on_linux(platform: str, known: str) -> None:
    assert local_machine(None, platform).platform == known


def test_the_environment_does_not_name_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os_user()
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "ann")
    assert os_user() == before != "ann"


@pytest.mark.usefixtures("windows")
def test_windows_itself_names_the_user() -> None:
    assert os_user() == "bob"


@pytest.mark.parametrize(
    "platform",
    [pytest.param("linux", marks=pytest.mark.posix_only("a file can be renamed while it is open")), "win32"],
)
def test_the_calls_that_are_open_leave_no_file_on_any_system(tmp_path: Path, platform: str) -> None:
    journal = CallJournal(tmp_path, platform=platform)
    journal.add(AuditLine(v=1, id="a", event="call"))
    assert len(list(tmp_path.rglob("*.jsonl"))) == 1
    journal.remove("a")
    journal.close()
    assert list(tmp_path.rglob("*.jsonl")) == []


def test_the_package_asks_for_its_system_only_where_a_test_can_exchange_it() -> None:
    found = {file.relative_to(ROOT).as_posix(): _count_branches(file) for file in ROOT.rglob("*.py")}
    assert {name: count for name, count in found.items() if count} == BRANCHES


def _count_branches(file: Path) -> int:
    """Return how often a module reads the name of its system, except in the default of a parameter."""
    text = file.read_text(encoding="utf-8")
    if "platform" not in text and "os.name" not in text:
        return 0
    nodes = [*ast.walk(ast.parse(text))]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    defaults = [each for node in functions for each in (*node.args.defaults, *node.args.kw_defaults) if each]
    is_default = {id(inner) for each in defaults for inner in ast.walk(each)}
    return sum(_names_system(node) for node in nodes if id(node) not in is_default)


def _names_system(node: ast.AST) -> bool:
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
        return False
    return (node.value.id, node.attr) in {("sys", "platform"), ("os", "name"), ("platform", "system")}


def test_a_users_file_is_written_with_the_access_list_of_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[object, ...]] = []
    monkeypatch.setattr(acl, "make_private", lambda path: seen.append(("private", path.read_bytes())))
    monkeypatch.setattr(acl, "copy_access", lambda file, copy: seen.append((file.name, copy.read_bytes())))
    file = tmp_path / "c.json"
    files.write_bytes(file, b"one", expected=None)
    files.write_bytes(file, b"two", expected=b"one")
    files.write_bytes(tmp_path / "c.env", b"secret", expected=None, is_private=True)
    assert seen == [("c.json", b""), ("private", b"")]  # before there is anything to read

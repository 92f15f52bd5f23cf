"""`daemon install --system`: the files of the service, and what systemd is told, with stand-ins for its programs."""

from __future__ import annotations

import io
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dynamic_mcp.cli import system_service
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.output import Output
from dynamic_mcp.cli.system_service import SERVICE, SOCKET, USERS, SystemService, install, uninstall
from dynamic_mcp.config.addresses import Address, TcpAddress, UnixAddress
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments
from tests.cli.commands import CliRunner
from tests.documents import ROOT

pytestmark = pytest.mark.posix_only("systemd")

EXAMPLES = ROOT / "examples" / "serving"
CONFIG = Path("/etc/dynamic-mcp/dynamic-mcp.json")
PROGRAM = "/usr/local/bin/dynamic-mcp"


class Machine:
    """A root directory with stand-ins for `systemctl` and `systemd-sysusers`, which write down what they are told."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self._calls, self._running, bin_dir = folder / "calls", folder / "running", folder / "bin"
        for each in (self.root, bin_dir):
            each.mkdir()
        for name in ("systemctl", "systemd-sysusers"):
            script = f"""\
                echo {name} "$@" >> {shlex.quote(str(self._calls))}
                case "$1" in
                    is-enabled|is-active) test -e {shlex.quote(str(self._running))} ;;
                    restart) touch {shlex.quote(str(self._running))} ;;
                    disable) rm -f {shlex.quote(str(self._running))} ;;
                esac
            """
            (bin_dir / name).write_text(f"#!/bin/sh\n{script}")
            (bin_dir / name).chmod(0o755)
        path = f"{bin_dir}{os.pathsep}{os.environ['PATH']}"
        self.service = SystemService(CONFIG, [PROGRAM], root=self.root, environment={"PATH": path})
        self._words = io.StringIO()
        self.context = Invocation(None, Output(io.StringIO(), self._words, {}, as_json=None, is_quiet=False))

    def install(self, *, overwrites: bool = False, **changes: object) -> list[str]:
        """Install the service; return what systemd was told besides questions."""
        service = replace(self.service, **changes)  # type: ignore[arg-type]  # members of it
        install(self.context, service, starts=True, overwrites=overwrites)
        return self.told()

    def told(self) -> list[str]:
        lines = self._calls.read_text().splitlines() if self._calls.exists() else []
        self._calls.unlink(missing_ok=True)
        return [line for line in lines if "is-enabled" not in line and "is-active" not in line]

    def said(self) -> str:
        words = self._words.getvalue()
        self._words.truncate(0)
        self._words.seek(0)
        return words


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_install_makes_a_user_listens_and_starts_the_service(machine: Machine) -> None:
    assert machine.install() == [
        f"systemd-sysusers {machine.root / USERS}",
        "systemctl daemon-reload",
        "systemctl enable dynamic-mcp.socket dynamic-mcp.service",
        "systemctl stop dynamic-mcp.service",
        "systemctl restart dynamic-mcp.socket",
        "systemctl restart dynamic-mcp.service",
    ]
    said = machine.said()
    for file in (USERS, SERVICE, SOCKET):
        assert f"wrote `{machine.root / file}`" in said
        assert (machine.root / file).stat().st_mode & 0o777 == 0o644
    assert "it serves `/etc/dynamic-mcp/dynamic-mcp.json` at `127.0.0.1:8808`" in said


def test_a_second_install_changes_nothing(machine: Machine) -> None:
    machine.install()
    machine.said()
    assert machine.install() == []
    assert machine.said() == "all files are there already; nothing was changed\n"


def test_a_changed_address_opens_the_socket_again(machine: Machine) -> None:
    machine.install()
    told = machine.install(listen=TcpAddress("127.0.0.1", 9000), credentials=["key"])
    assert told[-3:-1] == ["systemctl stop dynamic-mcp.service", "systemctl restart dynamic-mcp.socket"]
    assert "ListenStream=127.0.0.1:9000\n" in (machine.root / SOCKET).read_text()


def test_an_edited_unit_is_shown_and_stays_unless_one_says_so(machine: Machine) -> None:
    machine.install()
    unit = machine.root / SERVICE
    unit.write_text(unit.read_text().replace("WatchdogSec=60s", "WatchdogSec=5s"))
    machine.told(), machine.said()
    with pytest.raises(DynamicMcpError, match="was edited"):
        machine.install()
    assert machine.told() == []
    assert "-WatchdogSec=5s\n+WatchdogSec=60s\n" in machine.said()
    assert "WatchdogSec=5s" in unit.read_text()
    assert machine.install(overwrites=True)[-1] == "systemctl restart dynamic-mcp.service"
    assert "WatchdogSec=60s" in unit.read_text()


def test_uninstall_ends_it_and_says_what_stays(machine: Machine) -> None:
    machine.install()
    machine.told(), machine.said()
    uninstall(machine.context, machine.service)
    assert machine.told() == [
        "systemctl disable --now dynamic-mcp.socket dynamic-mcp.service",
        "systemctl daemon-reload",
    ]
    assert not [each for each in machine.root.rglob("*") if each.is_file()]
    assert "`/var/lib/dynamic-mcp` and the config are still there" in machine.said()
    uninstall(machine.context, machine.service)
    assert "no service is installed" in machine.said()


def test_credentials_of_the_config_are_loaded_as_they_are_there(machine: Machine) -> None:
    for folder, name in (("etc/credstore", "plain"), ("etc/credstore.encrypted", "sealed")):
        (machine.root / folder).mkdir(parents=True)
        (machine.root / folder / name).touch()
    machine.install(credentials=["plain", "sealed", "gone"])
    lines = (machine.root / SERVICE).read_text().splitlines()
    at = lines.index("LoadCredential=plain")
    assert lines[at : at + 4] == ["LoadCredential=plain", "LoadCredentialEncrypted=sealed", "LoadCredential=gone", ""]
    said = machine.said()
    assert "`${credential:gone}`, and there is no `/etc/credstore/gone`" in said
    assert said.count("warning") == 1


@pytest.mark.parametrize(
    ("listen", "written"),
    [
        (TcpAddress("::1", 8808), "[::1]:8808"),
        (TcpAddress("localhost", 80), ":80"),
        (UnixAddress("/run/dynamic-mcp/x.sock"), None),
    ],
)
def test_the_socket_listens_where_the_config_says(machine: Machine, listen: Address, written: str | None) -> None:
    machine.install(listen=listen)
    assert (machine.root / SOCKET).exists() is (written is not None)
    if written is None:
        assert "a restart refuses clients" in machine.said()
    else:
        assert f"{written}\n" in (machine.root / SOCKET).read_text()


def test_the_examples_are_what_it_writes(cli: CliRunner) -> None:
    done = cli.run("daemon", "install", "--system", "--root", "image")
    assert done.code == 0
    for file, example in (
        (SERVICE, "dynamic-mcp.service"),
        (SOCKET, "dynamic-mcp.socket"),
        (USERS, "dynamic-mcp.sysusers"),
    ):
        assert (cli.folder / "image" / file).read_text() == (EXAMPLES / example).read_text(encoding="utf-8")


def test_print_shows_the_files_and_changes_nothing(cli: CliRunner) -> None:
    cli.configure({"a": {"command": "${credential:key}"}}, settings={"http": {"listen": "127.0.0.1:9000"}})
    shown = cli.run("daemon", "install", "--system", "--print", "-c", str(cli.config), "--json").json["files"]
    assert f"serve {cli.config} --http\n" in shown[f"/{SERVICE}"]
    assert "\nLoadCredential=key\n" in shown[f"/{SERVICE}"]
    assert "ListenStream=127.0.0.1:9000\n" in shown[f"/{SOCKET}"]
    plain = cli.run("daemon", "install", "--system", "--print", "-c", str(cli.config)).out
    assert plain == "\n".join(shown.values())


def test_what_is_for_the_system_needs_it_to_be_said(cli: CliRunner) -> None:
    done = cli.run("daemon", "install", "--overwrite")
    assert done.code == 2
    assert "`--root` and `--overwrite` are for `--system`" in done.err


def _as_another_user(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def _with_a_program_at_home(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(system_service, "find_own_program", lambda: (["/home/ann/.local/bin/dynamic-mcp"], ""))


@pytest.mark.parametrize(
    ("prepare", "why"), [(_as_another_user, "needs root"), (_with_a_program_at_home, "cannot see its program")]
)
def test_a_service_that_could_not_run_is_refused_before_anything_is_written(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    prepare: Callable[[pytest.MonkeyPatch, Machine], None],
    why: str,
) -> None:
    prepare(monkeypatch, machine)
    (tmp_path / "c.json").write_text('{"mcpServers": {}}')
    context = Invocation(str(tmp_path / "c.json"), machine.context.out)
    with pytest.raises(InvalidArguments, match=why):
        system_service.install_system_service(context)


@pytest.mark.full
def test_systemd_has_nothing_to_say_about_a_service_with_credentials(machine: Machine) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    machine.install(command=[sys.executable, "a word", "100%", "$HOME"], credentials=["one", "two.key"])
    units = [str(machine.root / file) for file in (SERVICE, SOCKET)]
    command = ["systemd-analyze", "verify", "--man=no", *units]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")

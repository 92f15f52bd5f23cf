"""`daemon install` and `uninstall`, with stand-ins for the service managers that record what they are told."""

from __future__ import annotations

import json
import os
import plistlib
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from dynamic_mcp import __version__
from tests.cli import fake_service_manager
from tests.cli.commands import BOUND_S, CliRunner, CommandResult

pytestmark = pytest.mark.posix_only("systemd and launchd; test_service_managers.py has the Task Scheduler")

# The program, as it is on another system: what it asks about the system says macOS.
_ON_MACOS = "import sys; sys.platform = 'darwin'; from dynamic_mcp.__main__ import main; main()"


@dataclass(frozen=True)
class ServiceMachine:
    """A home on a machine whose service managers are stand-ins."""

    cli: CliRunner
    state: Path

    @property
    def config(self) -> Path:
        return self.cli.config

    @property
    def home(self) -> Path:
        return self.cli.folder / "person"

    @property
    def calls(self) -> list[list[str]]:
        """The calls so far."""
        file = self.state / "calls"
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []

    def actions(self) -> list[str]:
        """Return what the managers were told to do since the last time, without the questions."""
        questions = {"show", "is-enabled", "is-active", "print"}
        told = [[word for word in call if word not in ("--user", "--quiet")] for call in self.calls]
        (self.state / "calls").unlink(missing_ok=True)
        return [" ".join(words[1:]) for words in told if words[1] not in questions]

    def run(self, *args: str, **env: str) -> CommandResult:
        """Run a command on Linux."""
        return self.cli.run(*args, **self._variables(env))

    def run_on_macos(self, *args: str) -> CommandResult:
        """Run a command on macOS."""
        command = [sys.executable, "-c", _ON_MACOS, *args]
        done = subprocess.run(
            command,
            cwd=self.cli.folder,
            env=self.cli.environment(**self._variables({})),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=False,
        )
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def _variables(self, more: dict[str, str]) -> dict[str, str]:
        path = f"{self.cli.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return {"HOME": str(self.home), "FAKE_MANAGER": str(self.state), "PATH": path, **more}


@pytest.fixture
def machine(cli: CliRunner) -> ServiceMachine:
    for name in ("bin", "state", "person"):
        (cli.folder / name).mkdir()
    for name in ("systemctl", "launchctl"):
        script = cli.folder / "bin" / name
        start = shlex.join([sys.executable, str(Path(fake_service_manager.__file__)), name])
        script.write_text(f'#!/bin/sh\nexec {start} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    cli.configure({}, settings={"daemon": True})
    return ServiceMachine(cli, cli.folder / "state")


def the_unit(machine: ServiceMachine) -> Path:
    (unit,) = (machine.cli.folder / "home" / "systemd" / "user").iterdir()
    return unit


def the_job(machine: ServiceMachine) -> Path:
    (job,) = (machine.home / "Library" / "LaunchAgents").iterdir()
    return job


# --- systemd ---------------------------------------------------------------------------------------------


def test_install_writes_a_unit_and_starts_it_now_and_with_each_login(machine: ServiceMachine) -> None:
    done = machine.run("daemon", "install")

    assert (done.code, done.out) == (0, "")
    unit = the_unit(machine)
    assert machine.actions() == ["daemon-reload", f"enable {unit.name}", f"restart {unit.name}"]
    assert f'"daemon" "run" "--replace" "--linger" "never" "-c" "{machine.config}"\n' in unit.read_text(
        encoding="utf-8"
    )
    assert f"wrote `{unit}`\nstarted `{unit.name}`" in done.err
    assert "warning" not in done.err
    assert unit.stat().st_mode & 0o711 == 0o600


def test_the_unit_starts_the_program_by_a_full_path(machine: ServiceMachine) -> None:
    machine.run("daemon", "install")

    (line,) = [
        line for line in the_unit(machine).read_text(encoding="utf-8").splitlines() if line.startswith("ExecStart=")
    ]
    program = shlex.split(line.removeprefix("ExecStart="))[0]
    assert os.access(program, os.X_OK)
    assert Path(program).is_absolute()


def test_the_daemon_finds_the_same_directories_as_the_shell_that_installed_it(machine: ServiceMachine) -> None:
    machine.run("daemon", "install", XDG_STATE_HOME="/srv/state of me", XDG_CACHE_HOME="relative", API_TOKEN="sk-1")

    text = the_unit(machine).read_text(encoding="utf-8")
    assert f'Environment="XDG_CONFIG_HOME={machine.cli.folder / "home"}"\n' in text
    assert 'Environment="XDG_STATE_HOME=/srv/state of me"\n' in text
    assert "XDG_CACHE_HOME" not in text
    assert "sk-1" not in text


def test_a_second_install_changes_nothing(machine: ServiceMachine) -> None:
    machine.run("daemon", "install")
    machine.actions()

    done = machine.run("daemon", "install", "--json")

    assert machine.actions() == []
    assert "installed and running already; nothing was changed" in done.err
    assert done.json == {"service": the_unit(machine).name, "file": str(the_unit(machine)), "changed": False}


def test_install_updates_a_unit_that_differs_and_starts_it_again(machine: ServiceMachine) -> None:
    machine.run("daemon", "install")
    unit = the_unit(machine)
    before = unit.read_bytes()
    unit.write_text("[Service]\nExecStart=/gone/dynamic-mcp\n", encoding="utf-8")
    machine.actions()

    done = machine.run("daemon", "install")

    assert unit.read_bytes() == before
    assert f"updated `{unit}`" in done.err
    assert machine.actions() == ["daemon-reload", f"enable {unit.name}", f"restart {unit.name}"]


def test_after_an_upgrade_install_replaces_the_daemon_of_the_version_before(machine: ServiceMachine) -> None:
    machine.run("daemon", "install")
    unit = the_unit(machine)
    unit.write_text(unit.read_text(encoding="utf-8").replace(__version__, "0.0.1"), encoding="utf-8")
    machine.actions()

    machine.run("daemon", "install")

    assert machine.actions()[-1] == f"restart {unit.name}"


@pytest.mark.parametrize("lost", ["running", "enabled"])
def test_install_starts_a_service_again_that_was_stopped_or_disabled(machine: ServiceMachine, lost: str) -> None:
    machine.run("daemon", "install")
    unit = the_unit(machine)
    (machine.state / f"{lost}-{unit.name}").unlink()

    done = machine.run("daemon", "install", "--json")

    assert done.json["changed"] is True
    assert f"started `{unit.name}`" in done.err
    assert {each.name for each in machine.state.glob(f"*-{unit.name}")} >= {
        f"running-{unit.name}",
        f"enabled-{unit.name}",
    }


def test_uninstall_undoes_all_of_it(machine: ServiceMachine) -> None:
    machine.run("daemon", "install")
    unit = the_unit(machine)
    machine.actions()

    done = machine.run("daemon", "uninstall")

    assert done.code == 0
    assert f"stopped `{unit.name}` and removed `{unit}`" in done.err
    assert not unit.exists()
    assert list(machine.state.glob("*-*")) == []
    assert machine.actions()[:2] == [f"disable --now {unit.name}", "daemon-reload"]


def test_uninstall_says_when_there_is_nothing(machine: ServiceMachine) -> None:
    done = machine.run("daemon", "uninstall", "--json")

    assert done.code == 0
    assert "no service is installed for this config" in done.err
    assert done.json["changed"] is False
    assert machine.calls == []


def test_a_service_can_be_removed_after_its_config(machine: ServiceMachine) -> None:
    machine.run("daemon", "install")
    machine.config.unlink()

    done = machine.run("daemon", "uninstall", "-c", str(machine.config))

    assert "stopped `" in done.err
    assert list((machine.cli.folder / "home" / "systemd" / "user").iterdir()) == []


def test_two_ways_to_write_a_path_are_one_service_and_two_configs_are_two(machine: ServiceMachine) -> None:
    other = machine.cli.folder / "other.json"
    other.write_text(machine.config.read_text(encoding="utf-8"), encoding="utf-8")

    names = [
        machine.run("daemon", "install", "--print", "--json", "-c", path).json["service"]
        for path in ("dynamic-mcp.json", "bin/../dynamic-mcp.json", str(machine.config), str(other))
    ]

    assert names[0] == names[1] == names[2] != names[3]


def test_print_shows_the_unit_that_install_writes_and_changes_nothing(machine: ServiceMachine) -> None:
    (machine.state / "unreachable").touch()
    shown = machine.run("daemon", "install", "--print")
    (machine.state / "unreachable").unlink()

    assert (shown.code, shown.err) == (0, "")
    assert machine.calls == []
    assert not (machine.cli.folder / "home").exists()
    machine.run("daemon", "install")
    assert the_unit(machine).read_text(encoding="utf-8") == shown.out


def test_print_of_uninstall_shows_the_commands_for_a_shell(machine: ServiceMachine) -> None:
    machine.run("daemon", "install")
    unit = the_unit(machine)
    machine.actions()

    shown = machine.run("daemon", "uninstall", "--print")

    assert shown.out == f"systemctl --user disable --now {unit.name}\n{shlex.join(['rm', str(unit)])}\n"
    assert (unit.exists(), machine.actions()) == (True, [])


@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_without_a_session_bus_nothing_is_changed_and_the_error_says_what_to_do(
    machine: ServiceMachine, command: str
) -> None:
    if command == "uninstall":
        machine.run("daemon", "install")
    (machine.state / "unreachable").touch()
    unit_dir = machine.cli.folder / "home" / "systemd" / "user"
    before = list(unit_dir.glob("*"))

    done = machine.run("daemon", command)

    assert (done.code, done.out) == (1, "")
    assert "systemd does not answer for this user: Failed to connect to bus: No medium found" in done.err
    assert "hint: run this in a login session of your own, without `sudo` and `su`" in done.err
    assert list(unit_dir.glob("*")) == before


def test_without_systemd_the_error_names_print(machine: ServiceMachine) -> None:
    done = machine.run("daemon", "install", PATH=str(machine.home))

    assert done.code == 1
    assert "error: `systemctl` was not found" in done.err
    assert "`dynamic-mcp daemon install --print`" in done.err


def test_a_service_that_does_not_start_can_be_installed_again(machine: ServiceMachine) -> None:
    (machine.state / "broken").touch()
    failed = machine.run("daemon", "install")
    (machine.state / "broken").unlink()
    machine.actions()

    done = machine.run("daemon", "install")

    unit = the_unit(machine)
    assert failed.code == 1
    assert f"error: `systemctl --user restart {unit.name}` failed: Job for {unit.name} failed." in failed.err
    assert done.code == 0
    assert machine.actions()[-1] == f"restart {unit.name}"


# --- the config ------------------------------------------------------------------------------------------


def test_a_config_that_does_not_ask_for_a_daemon_gets_a_warning(machine: ServiceMachine) -> None:
    machine.cli.configure({})

    done = machine.run("daemon", "install")

    assert done.code == 0
    assert "warning: AI tools do not use this daemon until" in done.err


@pytest.mark.parametrize("text", [None, "{", '{"mcpServers": 1}'])
def test_a_config_that_is_missing_or_broken_is_not_installed(machine: ServiceMachine, text: str | None) -> None:
    if text is None:
        machine.config.unlink()
    else:
        machine.config.write_text(text, encoding="utf-8")

    done = machine.run("daemon", "install", "-c", str(machine.config))

    assert done.code == 2
    assert not (machine.cli.folder / "home").exists()
    assert machine.calls == []


# --- launchd ---------------------------------------------------------------------------------------------


def test_macos_gets_a_job_that_starts_now_and_with_each_login(machine: ServiceMachine) -> None:
    done = machine.run_on_macos("daemon", "install")

    assert (done.code, done.out) == (0, "")
    job = the_job(machine)
    content = plistlib.loads(job.read_bytes())
    assert job.name == f"{content['Label']}.plist"
    assert content["ProgramArguments"][-7:] == [
        "daemon",
        "run",
        "--replace",
        "--linger",
        "never",
        "-c",
        str(machine.config),
    ]
    target = f"gui/{os.getuid()}/{content['Label']}"
    assert machine.actions() == [f"enable {target}", f"bootstrap gui/{os.getuid()} {job}"]
    assert f"wrote `{job}`\nstarted `{content['Label']}`" in done.err


def test_macos_changes_nothing_the_second_time_and_replaces_a_job_that_differs(machine: ServiceMachine) -> None:
    machine.run_on_macos("daemon", "install")
    job = the_job(machine)
    before = job.read_bytes()
    machine.actions()

    again = machine.run_on_macos("daemon", "install")
    nothing = machine.actions()
    job.write_bytes(plistlib.dumps({"Label": job.stem}))
    changed = machine.run_on_macos("daemon", "install")

    assert "nothing was changed" in again.err
    assert nothing == []
    assert f"updated `{job}`" in changed.err
    assert job.read_bytes() == before
    assert [each.split()[0] for each in machine.actions()] == ["bootout", "enable", "bootstrap"]


def test_macos_starts_a_job_again_that_has_ended(machine: ServiceMachine) -> None:
    machine.run_on_macos("daemon", "install")
    (machine.state / f"running-{the_job(machine).stem}").unlink()

    assert "started `" in machine.run_on_macos("daemon", "install").err
    assert (machine.state / f"running-{the_job(machine).stem}").exists()


def test_macos_uninstall_waits_for_the_job_and_removes_it(machine: ServiceMachine) -> None:
    machine.run_on_macos("daemon", "install")
    job = the_job(machine)

    done = machine.run_on_macos("daemon", "uninstall")

    assert f"stopped `{job.stem}` and removed `{job}`" in done.err
    assert not job.exists()
    assert list(machine.state.glob("*-*")) == []


def test_macos_without_a_login_session_says_what_to_do(machine: ServiceMachine) -> None:
    (machine.state / "unreachable").touch()

    done = machine.run_on_macos("daemon", "install")

    assert done.code == 1
    assert "launchd has no login session of this user" in done.err
    assert "hint: log in at the screen" in done.err
    assert not (machine.home / "Library").exists()

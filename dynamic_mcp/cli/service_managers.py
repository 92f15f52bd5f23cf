"""The service managers of Linux, macOS and Windows, controlled through their commands."""

from __future__ import annotations

import hashlib
import html
import plistlib
import re
import subprocess
import sys
import time
from codecs import BOM_UTF16_LE
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from dynamic_mcp import __version__
from dynamic_mcp.config.location import config_key
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.system.paths import state_dir
from dynamic_mcp.system.shell import quote
from dynamic_mcp.system.text import replace_unprintable

# The time for a daemon to end its calls and its servers.
_STOP_S = 30
# systemd refuses the path of a program with these, so a shell starts it.
_NOT_IN_A_PROGRAM = frozenset("\"'\\") | frozenset(map(chr, (*range(32), 127)))
_PLAIN = re.compile(r"[A-Za-z0-9_./:=@+,-]+")
# The version makes the file differ after an upgrade, so that installing again replaces the old daemon.
_ORIGIN = f"Written by `dynamic-mcp daemon install` {__version__}; `dynamic-mcp daemon uninstall` removes it."
_UNIT = """\
# {origin}
[Unit]
Description=dynamic-mcp for "{description}"

[Service]
Type=exec
{environment}ExecStart={command}
Restart=on-failure
RestartSec=5s
# the config or the command line is wrong, which another start does not change
RestartPreventExitStatus=2
# the daemon ends its servers itself, and what is left after that is killed
KillMode=mixed
TimeoutStopSec={stop_s}s
# a server that runs out of memory costs the others nothing
OOMPolicy=continue
# a core dump would hold tokens
LimitCORE=0

[Install]
WantedBy=default.target
"""
# The schema of tasks is that of MS-TSCH, section 2.5. Without these settings, a task has a low priority, ends after
# three days, and does not start on batteries.
_TASK = """\
<?xml version="1.0" encoding="UTF-16"?>
<!-- {origin} -->
<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">
  <RegistrationInfo>
    <Description>dynamic-mcp for "{description}"</Description>
  </RegistrationInfo>
  <Triggers>
    <LogonTrigger>
      <UserId>{user}</UserId>
    </LogonTrigger>
  </Triggers>
  <Principals>
    <Principal id="user">
      <UserId>{user}</UserId>
      <LogonType>InteractiveToken</LogonType>
      <RunLevel>LeastPrivilege</RunLevel>
    </Principal>
  </Principals>
  <Settings>
    <MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy>
    <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>
    <StopIfGoingOnBatteries>false</StopIfGoingOnBatteries>
    <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>
    <Priority>5</Priority>
    <RestartOnFailure>
      <Interval>PT1M</Interval>
      <Count>3</Count>
    </RestartOnFailure>
  </Settings>
  <Actions Context="user">
    <Exec>
      <Command>{program}</Command>
      <Arguments>{arguments}</Arguments>
    </Exec>
  </Actions>
</Task>
"""
# SCHED_S_TASK_RUNNING, the last result of a task that runs; words for its state are in the language of the system.
_TASK_IS_RUNNING = "267009"


# A stop waits for the daemon.
_BOUND_S = 2 * _STOP_S
_POLL_S = 0.1


class ServiceManager(Protocol):
    """Runs a service that a file describes. The methods may raise DynamicMcpError."""

    @property
    def name(self) -> str: ...

    @property
    def file(self) -> Path: ...

    @property
    def removal(self) -> list[str]:
        """The command that stops the service and forgets it, before its file is removed."""

    def format_file(self, command: Sequence[str], variables: Mapping[str, str]) -> bytes:
        """Return the content of the file for a service that runs `command`, with these variables set."""

    def check(self) -> None:
        """Raise DynamicMcpError with a hint if the manager cannot be reached."""

    def is_running(self) -> bool:
        """Return whether the service runs and starts with each login."""

    def start(self) -> None:
        """Start the service, again if it runs, now and with each login."""

    def stop(self) -> None:
        """Stop the service and forget it."""

    def forget_file(self) -> None:
        """Forget the file, which has been removed."""


@dataclass(frozen=True)
class Systemd:
    """The systemd of this user."""

    config: Path
    environment: Mapping[str, str] = field(repr=False)

    @property
    def name(self) -> str:
        return service_name(self.config)

    @property
    def file(self) -> Path:
        """The unit, where systemd looks for those of a user (systemd.unit(5), section UNIT FILE LOAD PATH)."""
        base = self.environment.get("XDG_CONFIG_HOME", "")
        folder = Path(base) if base.startswith("/") else Path.home() / ".config"
        return folder / "systemd" / "user" / self.name

    @property
    def removal(self) -> list[str]:
        return ["systemctl", "--user", "disable", "--now", self.name]

    def format_file(self, command: Sequence[str], variables: Mapping[str, str]) -> bytes:
        return unit_text(command, self.config, variables).encode()

    def check(self) -> None:
        """Raise DynamicMcpError with a hint if systemd cannot be reached."""
        result = _run(["systemctl", "--user", "show", "--property=Version"], self.environment)
        if result.returncode != 0:
            raise DynamicMcpError(
                f"systemd does not answer for this user: {_reason(result)}",
                hint="run this in a login session of your own, without `sudo` and `su`; or start"
                " `dynamic-mcp daemon run` in another way",
            )

    def is_running(self) -> bool:
        return all(self._try(question).returncode == 0 for question in ("is-enabled", "is-active"))

    def start(self) -> None:
        self._do("daemon-reload")
        self._do("enable", self.name)
        self._do("restart", self.name)

    def stop(self) -> None:
        run_manager(self.removal, self.environment, hint=self._hint)

    def forget_file(self) -> None:
        self._do("daemon-reload")
        self._try("reset-failed")  # fails if the service had not failed

    def _try(self, command: str) -> subprocess.CompletedProcess[str]:
        return _run(["systemctl", "--user", "--quiet", command, self.name], self.environment)

    def _do(self, *words: str) -> None:
        run_manager(["systemctl", "--user", *words], self.environment, hint=self._hint)

    @property
    def _hint(self) -> str:
        return f"`systemctl --user status {self.name}` says more"


@dataclass(frozen=True)
class Launchd:
    """The launchd of this user's login session."""

    config: Path
    environment: Mapping[str, str] = field(repr=False)
    uid: int

    @property
    def name(self) -> str:
        return job_label(self.config)

    @property
    def file(self) -> Path:
        """The job, where launchd looks for those of a user (launchd.plist(5), section FILES)."""
        return Path.home() / "Library" / "LaunchAgents" / f"{self.name}.plist"

    @property
    def removal(self) -> list[str]:
        return ["launchctl", "bootout", self._target]

    def format_file(self, command: Sequence[str], variables: Mapping[str, str]) -> bytes:
        return job_bytes(command, self.config, variables, home=Path.home())

    def check(self) -> None:
        """Raise DynamicMcpError with a hint if there is no login session."""
        result = _run(["launchctl", "print", self._domain], self.environment)
        if result.returncode != 0:
            raise DynamicMcpError(
                f"launchd has no login session of this user: {_reason(result)}",
                hint="log in at the screen, and run this in a terminal there; or start `dynamic-mcp daemon run` in"
                " another way",
            )

    def is_running(self) -> bool:
        """Return whether the job is loaded, runs, and starts with each login."""
        result = _run(["launchctl", "print", self._target], self.environment)
        return "state = running" in map(str.strip, result.stdout.splitlines())

    def start(self) -> None:
        self.stop()
        self._do("enable", self._target)  # a disabled job cannot be loaded
        self._do("bootstrap", self._domain, str(self.file))

    def stop(self) -> None:
        """Stop the service and forget it. `bootout` may return before the job has ended."""
        if not self._is_loaded():
            return
        self._do(*self.removal[1:])
        ends_at = time.monotonic() + _BOUND_S
        while self._is_loaded():
            if time.monotonic() > ends_at:
                raise DynamicMcpError(f"launchd has not ended `{self.name}` for {_BOUND_S} s", hint="try again")
            time.sleep(_POLL_S)

    def forget_file(self) -> None:
        """Do nothing: launchd forgets a job when it is stopped."""

    def _do(self, *words: str) -> None:
        run_manager(["launchctl", *words], self.environment, hint=f"`launchctl print {self._target}` says more")

    def _is_loaded(self) -> bool:
        return _run(["launchctl", "print", self._target], self.environment).returncode == 0

    @property
    def _domain(self) -> str:
        return f"gui/{self.uid}"

    @property
    def _target(self) -> str:
        return f"{self._domain}/{self.name}"


@dataclass(frozen=True)
class TaskScheduler:
    """The Task Scheduler of Windows, for a `user` by their security identifier."""

    config: Path
    environment: Mapping[str, str] = field(repr=False)
    user: str

    @property
    def name(self) -> str:
        return f"dynamic-mcp-{_hash(self.config)}"

    @property
    def file(self) -> Path:
        """The definition, of which the Task Scheduler keeps a copy."""
        return state_dir() / "tasks" / f"{self.name}.xml"

    @property
    def removal(self) -> list[str]:
        return ["schtasks", "/delete", "/f", "/tn", self.name]

    def format_file(self, command: Sequence[str], variables: Mapping[str, str]) -> bytes:
        return task_bytes(command, self.config, self.user)

    def check(self) -> None:
        """Raise DynamicMcpError if the Task Scheduler cannot be reached."""
        self._do("/query", "/fo", "csv", "/nh")

    def is_running(self) -> bool:
        result = _run(["schtasks", "/query", "/v", "/fo", "csv", "/nh", "/tn", self.name], self.environment)
        return result.returncode == 0 and _TASK_IS_RUNNING in result.stdout

    def start(self) -> None:
        self._end()
        self._do("/create", "/f", "/tn", self.name, "/xml", str(self.file))
        self._do("/run", "/tn", self.name)

    def stop(self) -> None:
        self._end()
        run_manager(self.removal, self.environment, hint=self._hint)

    def forget_file(self) -> None:
        """Do nothing: the Task Scheduler reads it once."""

    def _end(self) -> None:
        """End the daemon, which the Task Scheduler would only kill, and then what is left of the task."""
        _run([sys.executable, "-P", "-m", "dynamic_mcp", "daemon", "stop", "-c", str(self.config)], self.environment)
        _run(["schtasks", "/end", "/tn", self.name], self.environment)  # fails if it does not run

    def _do(self, *words: str) -> None:
        run_manager(["schtasks", *words], self.environment, hint=self._hint)

    @property
    def _hint(self) -> str:
        return f"`schtasks /query /v /fo list /tn {self.name}` says more"


def run_manager(command: list[str], environment: Mapping[str, str], *, hint: str) -> None:
    """Run a command of a service manager. Raises DynamicMcpError with a hint if it fails."""
    result = _run(command, environment)
    if result.returncode != 0:
        raise DynamicMcpError(f"`{quote(*command)}` failed: {_reason(result)}", hint=hint)


def _run(command: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_BOUND_S,
            check=False,
        )
    except FileNotFoundError as exc:
        raise DynamicMcpError(
            f"`{command[0]}` was not found",
            hint="`dynamic-mcp daemon install --print` prints the file, for another service manager",
        ) from exc
    except subprocess.TimeoutExpired as exc:
        raise DynamicMcpError(f"`{quote(*command)}` did not end within {_BOUND_S} s", hint="try again") from exc


def _reason(result: subprocess.CompletedProcess[str]) -> str:
    lines = result.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit code {result.returncode}"


def service_name(config: Path) -> str:
    """Return the name of the service of a config, given by its absolute path."""
    return f"dynamic-mcp-{_hash(config)}.service"


def job_label(config: Path) -> str:
    """Return the label of the launchd job of a config, given by its absolute path."""
    return f"dynamic-mcp.{_hash(config)}"


def unit_text(command: Sequence[str], config: Path, environment: Mapping[str, str]) -> str:
    """Return a unit that runs `command`, a full path and its arguments, in a further `environment`."""
    return _UNIT.format(
        origin=_ORIGIN,
        description=replace_unprintable(str(config)).replace("%", "%%"),
        environment="".join(f"Environment={_quote(f'{name}={value}')}\n" for name, value in environment.items()),
        command=" ".join(map(_quote, _exec_words(command))),
        stop_s=_STOP_S,
    )


def job_bytes(command: Sequence[str], config: Path, environment: Mapping[str, str], *, home: Path) -> bytes:
    """Return a launchd job that runs `command`, a full path and its arguments, in a further `environment`.

    Raises DynamicMcpError if a property list cannot hold one of the paths.
    """
    job: dict[str, object] = {
        "Label": job_label(config),
        "ProgramArguments": list(command),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": _STOP_S,
        "ExitTimeOut": _STOP_S,
        "ProcessType": "Interactive",  # its servers are interactive, so they are not throttled
        "WorkingDirectory": str(home),
    }
    if environment:
        job["EnvironmentVariables"] = dict(environment)
    try:
        plain = plistlib.dumps(job)
    except ValueError as exc:
        raise DynamicMcpError(
            f"a launchd job cannot hold this path: `{replace_unprintable(str(config))}`",
            hint="rename what has control characters in its name",
        ) from exc
    return plain.replace(b"<dict>", f"<!-- {_ORIGIN} -->\n<dict>".encode(), 1)


def task_bytes(command: Sequence[str], config: Path, user: str) -> bytes:
    """Return a task that runs `command`, a full path and its arguments, when this user logs on."""
    program, *arguments = command
    text = _TASK.format(
        origin=_ORIGIN,
        description=html.escape(replace_unprintable(str(config))),
        user=html.escape(user),
        program=html.escape(program),
        arguments=html.escape(quote(*arguments, platform="win32")),
    )
    return BOM_UTF16_LE + text.encode("utf-16-le", "surrogatepass")


def _exec_words(command: Sequence[str]) -> Iterator[str]:
    """Yield the words of `ExecStart=`, which are to be quoted (systemd.service(5), section COMMAND LINES)."""
    program, *arguments = command
    if not _NOT_IN_A_PROGRAM.isdisjoint(program):
        program, arguments = "/bin/sh", ["-c", 'exec "$0" "$@"', program, *arguments]
    yield program  # variables are not substituted in the program, so a dollar sign in it is not doubled
    for argument in arguments:
        yield argument.replace("$", "$$")


def format_words(command: Sequence[str]) -> str:
    """Return the value of `ExecStart=`, in which words are quoted only if they must be."""
    return " ".join(word if _PLAIN.fullmatch(word) else _quote(word) for word in _exec_words(command))


def _quote(text: str) -> str:
    """Quote one word of a unit (systemd.syntax(7), section QUOTING; systemd.unit(5), section SPECIFIERS)."""
    return '"' + "".join(map(_escape, text)) + '"'


def _escape(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character == "%":
        return "%%"
    if character < " " or character == "\x7f":
        return f"\\x{ord(character):02x}"
    if "\udc80" <= character <= "\udcff":  # a byte of a path that is not UTF-8, as a line of a unit must be
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character


def _hash(config: Path) -> str:
    return hashlib.sha256(config_key(config).encode(errors="surrogateescape")).hexdigest()[:8]

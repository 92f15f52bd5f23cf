"""The service managers of Linux and macOS, told what to do through their own commands."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from dynamic_mcp.cli import service_files
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.system.shell import quote

# A stop waits for the daemon.
_BOUND_S = 2 * service_files.STOP_S
_POLL_S = 0.1


class ServiceManager(Protocol):
    """What runs a service, which a file describes. The methods may raise DynamicMcpError."""

    @property
    def name(self) -> str:
        """The name by which the manager knows the service."""

    @property
    def file(self) -> Path:
        """The file of the service."""

    @property
    def removal(self) -> list[str]:
        """The command that stops the service and forgets it, before its file is removed."""

    def format_file(self, command: Sequence[str], variables: Mapping[str, str]) -> bytes:
        """Return the content of the file for a service that runs `command`, with these variables set."""

    def check(self) -> None:
        """Raise DynamicMcpError, with what to do, if the manager cannot be reached."""

    def is_running(self) -> bool:
        """Tell whether the service runs, and starts with each login."""

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
        """The name of the unit."""
        return service_files.service_name(self.config)

    @property
    def file(self) -> Path:
        """The unit, where systemd looks for those of a user (systemd.unit(5), section UNIT FILE LOAD PATH)."""
        base = self.environment.get("XDG_CONFIG_HOME", "")
        folder = Path(base) if base.startswith("/") else Path.home() / ".config"
        return folder / "systemd" / "user" / self.name

    @property
    def removal(self) -> list[str]:
        """The command that stops the service and forgets it, before its file is removed."""
        return ["systemctl", "--user", "disable", "--now", self.name]

    def format_file(self, command: Sequence[str], variables: Mapping[str, str]) -> bytes:
        """Return the content of the file for a service that runs `command`, with these variables set."""
        return service_files.unit_text(command, self.config, variables).encode()

    def check(self) -> None:
        """Raise DynamicMcpError, with what to do, if systemd cannot be reached."""
        done = _run(["systemctl", "--user", "show", "--property=Version"], self.environment)
        if done.returncode != 0:
            raise DynamicMcpError(
                f"systemd does not answer for this user: {_reason(done)}",
                hint="run this in a login session of your own, without `sudo` and `su`; or start"
                " `dynamic-mcp daemon run` in another way",
            )

    def is_running(self) -> bool:
        """Tell whether the service runs, and starts with each login."""
        return all(self._try(question).returncode == 0 for question in ("is-enabled", "is-active"))

    def start(self) -> None:
        """Start the service, again if it runs, now and with each login."""
        self._do("daemon-reload")
        self._do("enable", self.name)
        self._do("restart", self.name)

    def stop(self) -> None:
        """Stop the service and forget it."""
        _require(self.removal, self.environment, hint=self._hint)

    def forget_file(self) -> None:
        """Forget the file, which has been removed."""
        self._do("daemon-reload")
        self._try("reset-failed")  # fails if the service had not failed

    def _try(self, command: str) -> subprocess.CompletedProcess[str]:
        return _run(["systemctl", "--user", "--quiet", command, self.name], self.environment)

    def _do(self, *words: str) -> None:
        _require(["systemctl", "--user", *words], self.environment, hint=self._hint)

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
        """The label of the job."""
        return service_files.job_label(self.config)

    @property
    def file(self) -> Path:
        """The job, where launchd looks for those of a user (launchd.plist(5), section FILES)."""
        return Path.home() / "Library" / "LaunchAgents" / f"{self.name}.plist"

    @property
    def removal(self) -> list[str]:
        """The command that stops the service and forgets it, before its file is removed."""
        return ["launchctl", "bootout", self._target]

    def format_file(self, command: Sequence[str], variables: Mapping[str, str]) -> bytes:
        """Return the content of the file for a service that runs `command`, with these variables set."""
        return service_files.job_bytes(command, self.config, variables, home=Path.home())

    def check(self) -> None:
        """Raise DynamicMcpError, with what to do, if there is no login session."""
        done = _run(["launchctl", "print", self._domain], self.environment)
        if done.returncode != 0:
            raise DynamicMcpError(
                f"launchd has no login session of this user: {_reason(done)}",
                hint="log in at the screen, and run this in a terminal there; or start `dynamic-mcp daemon run` in"
                " another way",
            )

    def is_running(self) -> bool:
        """Tell whether the job is loaded, and starts with each login, and runs."""
        done = _run(["launchctl", "print", self._target], self.environment)
        return "state = running" in map(str.strip, done.stdout.splitlines())

    def start(self) -> None:
        """Start the service, again if it runs, now and with each login."""
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
        _require(["launchctl", *words], self.environment, hint=f"`launchctl print {self._target}` says more")

    def _is_loaded(self) -> bool:
        return _run(["launchctl", "print", self._target], self.environment).returncode == 0

    @property
    def _domain(self) -> str:
        return f"gui/{self.uid}"

    @property
    def _target(self) -> str:
        return f"{self._domain}/{self.name}"


def _require(command: list[str], environment: Mapping[str, str], *, hint: str) -> None:
    done = _run(command, environment)
    if done.returncode != 0:
        raise DynamicMcpError(f"`{quote(*command)}` failed: {_reason(done)}", hint=hint)


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


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"

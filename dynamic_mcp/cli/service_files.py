"""The files that start the daemon with a login: a systemd user unit, and a launchd job."""

from __future__ import annotations

import hashlib
import plistlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dynamic_mcp import __version__
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.system.text import replace_unprintable

# How long a daemon may take to end its calls and its servers.
STOP_S = 30
# systemd refuses the path of a program with these, so a shell starts it.
_NOT_IN_A_PROGRAM = frozenset("\"'\\") | frozenset(map(chr, (*range(32), 127)))

# The version makes the file differ after an upgrade, so that installing again replaces the daemon of before.
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
        command=" ".join(_exec_words(command)),
        stop_s=STOP_S,
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
        "ThrottleInterval": STOP_S,
        "ExitTimeOut": STOP_S,
        "ProcessType": "Interactive",  # its servers answer people, so they are not throttled
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


def _exec_words(command: Sequence[str]) -> Iterator[str]:
    """Yield the words of `ExecStart=` (systemd.service(5), section COMMAND LINES)."""
    program, *arguments = command
    if not _NOT_IN_A_PROGRAM.isdisjoint(program):
        program, arguments = "/bin/sh", ["-c", 'exec "$0" "$@"', program, *arguments]
    yield _quote(program)  # variables are not substituted in the program, so a dollar sign in it is not doubled
    for argument in arguments:
        yield _quote(argument.replace("$", "$$"))


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
    return hashlib.sha256(str(config).encode(errors="surrogateescape")).hexdigest()[:8]

"""The start of a serving proxy: finds its config, sets up its log and hands both to the host, without click."""

from __future__ import annotations

import os
import sys

from dynamic_mcp import host
from dynamic_mcp.cli.invocation import find_config
from dynamic_mcp.config.read import read_all
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import ConfigError
from dynamic_mcp.host import LogOptions, ServingLog
from dynamic_mcp.observe import log_output
from dynamic_mcp.system.shell import format_command
from dynamic_mcp.system.text import escape, pluralize

_ON_A_TERMINAL = """\
dynamic-mcp is an MCP server: your AI tool starts it and talks to it over stdin and stdout.
`dynamic-mcp install TOOL` adds it to a tool's settings; by hand, add the command `{command}` there.
Serving {count} on this terminal until Ctrl-D. `dynamic-mcp --help` lists the other commands."""


def serve(argument: str | None, *, log_level: str | None = None, log_format: str | None = None) -> None:
    """Serve the config that `argument`, the environment or the usual places name. Raises ConfigError."""
    level = _parse_level(log_level, "--log-level")
    level = level or _parse_level(os.environ.get("DYNAMIC_MCP_LOG"), "DYNAMIC_MCP_LOG")
    log = ServingLog(LogOptions(level, log_format))
    try:
        file = find_config(argument)
        log.config = str(file.absolute())
        configs = read_all(file, os.environ)
        log.configure(configs.base.log)
        if sys.stdin.isatty():
            _explain(configs.base)
        host.run(configs, log, stdin=sys.stdin.fileno(), stdout=_claim_stdout())
    except ConfigError as exc:
        log.record_failure(exc)
        raise
    finally:
        log.close()


def _parse_level(name: str | None, source: str) -> str | None:
    if name is None or name.lower() in log_output.LEVELS:
        return name and name.lower()
    raise ConfigError(source, "", f"`{name}` is not a level", hint="use debug, info, warning or error")


def _explain(config: Config) -> None:
    """Tell a person who started it on a terminal what this program is."""
    words = _ON_A_TERMINAL.format(command=format_command(config.file), count=pluralize(len(config.groups), "group"))
    print(escape(words, keep="\n"), file=sys.stderr)  # noqa: T201


def _claim_stdout() -> int:
    """Keep stdout for the protocol: a stray `print` goes to stderr."""
    ours = os.dup(1)
    os.dup2(2, 1)
    return ours

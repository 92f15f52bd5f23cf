"""One run of a command: its config, and where its words and data go."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from dynamic_mcp.cli.output import Output
from dynamic_mcp.observe import log_output
from dynamic_mcp.system import paths

if TYPE_CHECKING:
    from dynamic_mcp.config.resolved import Config


@dataclass(frozen=True)
class Invocation:
    """What a command is given; `named` is the config file that `--config` names."""

    named: str | None
    out: Output
    verbose: int = 0

    def file(self, *, may_be_new: bool = False) -> Path:
        """Return the config file, found as serving finds it. Raises ConfigError."""
        return config_file(self.named, may_be_new=may_be_new)

    def named_file(self) -> Path | None:
        """Return the full path of the config that --config names, if it names one."""
        return self.file().absolute() if self.named else None

    def config(self) -> Config:
        """Read the config. Raises ConfigError."""
        from dynamic_mcp.config.read import read

        return read(self.file(), os.environ)

    def config_of(self, group: str | None) -> Config:
        """Read the config, with no group but this one where it is named. Raises ConfigError and NotFound."""
        config = self.config()
        if group is None:
            return config
        chosen = tuple(each for each in config.groups if each.name == group)
        if not chosen:
            raise _no_group(group, config)
        return replace(config, groups=chosen)

    def listed(self, group: str | None) -> Config:
        """Read the config as `config_of` does, and say how to go on where it has no groups."""
        config = self.config_of(group)
        if not config.groups:
            self.out.words(without_groups(config.file))
        return config


def without_groups(file: Path) -> str:
    """Say that a config has no groups, and how to get some."""
    from dynamic_mcp.config.read import list_disabled
    from dynamic_mcp.system.shell import format_command

    off = list_disabled(file)
    if off:
        hint = f"`{format_command('enable', off[0])}` enables one"
        return f"every server in `{file}` is disabled\nhint: {hint}"
    hint = "`dynamic-mcp add NAME -- COMMAND` adds one, `dynamic-mcp import` brings in those of your AI tools"
    return f"`{file}` has no groups yet\nhint: {hint}"


def config_file(named: str | None, *, may_be_new: bool = False) -> Path:
    """Return the config that a command uses: this is the one rule, for serving and for every command.

    What is named on the command line, else $DYNAMIC_MCP_CONFIG, else ./dynamic-mcp.json, else the one in the user's
    config directory. Where there is none, a new one goes into the user's directory. Raises ConfigError.
    """
    from dynamic_mcp.config.read import find

    return find(named, os.environ, cwd=Path.cwd(), user_dir=paths.config_dir(), may_be_new=may_be_new)


def invocation(named: str | None, *, quiet: bool, verbose: int, as_json: bool) -> Invocation:
    """Begin a command: its log goes to stderr, errors only unless it is to say more."""
    levels = ("error", "info", "debug")
    log_output.log_to_terminal("error" if quiet else levels[min(verbose, 2)], sys.stderr)
    out = Output(sys.stdout, sys.stderr, os.environ, as_json=as_json, is_quiet=quiet, is_plain=verbose > 0)
    return Invocation(named, out, verbose)


def _no_group(name: str, config: Config) -> Exception:
    from dynamic_mcp.config.read import list_disabled
    from dynamic_mcp.errors import NotFound
    from dynamic_mcp.system.shell import format_command

    names = [group.name for group in config.groups]
    if name in list_disabled(config.file):
        return NotFound("enabled group", name, hint=f"`{format_command('enable', name)}` enables it")
    listed = ", ".join(f"`{each}`" for each in names)
    hint = f"the groups of `{config.file}` are {listed}" if names else f"`{config.file}` has no groups"
    return NotFound("group", name, names, hint=hint)

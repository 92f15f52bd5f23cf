"""One run of a command: its config and its output."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from dynamic_mcp.errors import NotFound, closest
from dynamic_mcp.observe import log_output
from dynamic_mcp.system import paths

if TYPE_CHECKING:
    from dynamic_mcp.cli.output import Output
    from dynamic_mcp.config.resolved import Config


class Invocation(Struct, frozen=True):
    """The context of a command: the values of `--config` and `--alone`, the profile, and the command line."""

    config_option: str | None
    out: Output
    verbose: int = 0
    is_alone: bool = False
    profile: str | None = None
    command: str = "dynamic-mcp"

    def config_path(self, *, may_be_new: bool = False) -> Path:
        """Return the config file, by the same rule as serving. Raises ConfigError."""
        return find_config(self.config_option, may_be_new=may_be_new)

    def explicit_path(self) -> Path | None:
        """Return the absolute path of `--config`, if set."""
        return self.config_path().absolute() if self.config_option else None

    def read_config(self, group: str | None = None) -> Config:
        """Read the config: the groups of the profile, or only one of them. Raises ConfigError and NotFound."""
        from dynamic_mcp.config.read import read

        config = narrow_config(read(self.config_path(), os.environ), self.profile)
        if group is None:
            return config
        groups = tuple(each for each in config.groups if each.name == group)
        if not groups:
            raise unknown_group(group, config)
        return replace(config, groups=groups)

    def read_groups(self, group: str | None = None) -> Config:
        """Read the config as `read_config` does, and print a hint if it has no groups."""
        config = self.read_config(group)
        if not config.groups:
            self.out.say(empty_config_message(config.file, self.profile))
        return config


def empty_config_message(file: Path, profile: str | None = None) -> str:
    """Return the message for a config or a profile without groups, with a hint."""
    from dynamic_mcp.config.read import list_disabled
    from dynamic_mcp.system.shell import format_command

    if profile is not None:
        return f"the profile `{profile}` has no groups\nhint: `{format_command('check', file)}` shows what it selects"
    off = list_disabled(file)
    if off:
        hint = f"`{format_command('enable', off[0])}` enables one"
        return f"every server in `{file}` is disabled\nhint: {hint}"
    hint = "`dynamic-mcp add NAME -- COMMAND` adds one, `dynamic-mcp import` brings in those of your AI tools"
    return f"`{file}` has no groups yet\nhint: {hint}"


def find_config(explicit: str | None, *, may_be_new: bool = False) -> Path:
    """Return the config to use, by the one rule for serving and for all commands.

    The file given on the command line comes first, then $DYNAMIC_MCP_CONFIG, ./dynamic-mcp.json and the file in the
    user's config directory. If none exists, one that `may_be_new` goes into the user's directory. Raises ConfigError.
    """
    from dynamic_mcp.config.read import find

    return find(explicit, os.environ, cwd=Path.cwd(), user_dir=paths.config_dir(), may_be_new=may_be_new)


def narrow_config(config: Config, profile: str | None) -> Config:
    """Return a config with only the groups of the profile, if one is chosen. Raises NotFound."""
    if profile is None:
        return config
    from dynamic_mcp.proxy.profiles import narrow, require

    presentations = narrow(config.presentations, require(config, profile))
    groups = tuple(group for group in config.groups if group.name in presentations)
    return replace(config, groups=groups, presentations=presentations)


def start_invocation(
    config_option: str | None, *, quiet: bool, verbose: int, as_json: bool | None, command: str = "dynamic-mcp"
) -> Invocation:
    """Start a command. Its log goes to stderr; without `--verbose`, only errors are logged."""
    from dynamic_mcp.cli.output import Output  # only serving writes the log file

    levels = ("error", "info", "debug")
    log_output.log_to_terminal("error" if quiet else levels[min(verbose, 2)], sys.stderr)
    out = Output(sys.stdout, sys.stderr, os.environ, as_json=as_json, is_quiet=quiet, is_plain=verbose > 0)
    return Invocation(config_option, out, verbose, command=command)


def unknown_group(name: str, config: Config) -> NotFound:
    """Return the error for an unknown group, with similar names."""
    from dynamic_mcp.config.read import list_disabled
    from dynamic_mcp.system.shell import format_command

    names = [group.name for group in config.groups]
    if name in list_disabled(config.file):
        return NotFound("enabled group", name, hint=f"`{format_command('enable', name)}` enables it")
    listed_names = ", ".join(f"`{each}`" for each in names)
    hint = f"the groups of `{config.file}` are {listed_names}" if names else f"`{config.file}` has no groups"
    return NotFound("group", name, closest(name, names), hint=hint)

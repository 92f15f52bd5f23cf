"""Configures scripts: `settings.scripts`, with what a script may use up."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, field
from msgspec.structs import replace

from dynamic_mcp.config.confinement import NO_SANDBOX
from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.resolved import FeatureServer
from dynamic_mcp.config.section import Section
from dynamic_mcp.config.substitute import Substitution, Surroundings, resolve_path
from dynamic_mcp.config.types import Duration, PathText, Size
from dynamic_mcp.errors import ConfigError

LONGEST_CPU_S = 60.0
_LARGEST_MEMORY = 1_000_000_000


class Scripts(Section, frozen=True):
    """What one script may use up. A script that wants more is ended, and its error says which of these it was."""

    clients: Annotated[
        Literal["auto", "all"],
        "Who may run them: `auto` leaves out clients that are known to run scripts of their own. Default: auto.",
    ] = "auto"
    cpu_s: Annotated[Duration, "How long it may compute between two calls; at most 60s. Default: 5s."] = field(
        default=5.0, name="cpu"
    )
    total_s: Annotated[
        Duration, "How long it may take in all, with its calls and the questions that they ask. Default: 2min."
    ] = field(default=120.0, name="total")
    calls: Annotated[Annotated[int, Meta(ge=1, le=10_000)], "How many tools it may call. Default: 50."] = 50
    parallel: Annotated[
        Annotated[int, Meta(ge=1, le=256)], "How many of its calls may run at once; further ones wait. Default: 8."
    ] = 8
    memory: Annotated[Size, "How much memory its values may take, from `1MB` to `1GB`. Default: 64MB."] = 64_000_000
    source: Annotated[Size, "How long its text may be. Default: 64kB."] = 64_000
    output: Annotated[Size, "How much it may print. Default: 16kB."] = 16_000

    sandbox: Annotated[
        Literal["off", "strict"],
        "`strict` confines the interpreter also by the operating system, which then gives it no files and no network"
        " even if it has a fault. It needs Linux with bubblewrap. Default: off.",
    ] = "off"
    folder: Annotated[
        PathText | None,
        "A folder, relative to the config, whose scripts `NAME.py` are the tools of a group `scripts`. Changes are"
        " noticed. Default: none.",
    ] = None

    def __post_init__(self) -> None:
        if not 0 < self.cpu_s <= LONGEST_CPU_S:
            raise FlawError("`cpu` must be more than 0 and at most 60s")
        if self.total_s <= 0:
            raise FlawError("`total` must be more than 0")
        if not 1_000_000 <= self.memory <= _LARGEST_MEMORY:
            raise FlawError("`memory` must be from `1MB` to `1GB`")


def resolve(
    section: Scripts | None, file: Path, surroundings: Surroundings, *, authenticates: bool
) -> tuple[Scripts | None, list[str]]:
    """Return the settings of scripts, None where only a profile runs them.

    Raises ConfigError if the packages for them are missing.
    """
    if find_spec("pydantic_monty") is None:
        from dynamic_mcp.system.extras import install_hint

        raise ConfigError(
            str(file),
            "settings.scripts" if section is not None else "profiles",
            "needs packages that are missing" if section is not None else "`scripts` needs packages that are missing",
            hint=install_hint("scripts"),
        )
    if section is not None and section.sandbox == "strict" and surroundings.platform != "linux":
        why = f"{NO_SANDBOX}: `strict` needs Linux"
        raise ConfigError(str(file), "settings.scripts.sandbox", why)
    if section is not None and section.folder is not None:
        texts = Substitution(surroundings.all_variables())
        folder = texts.fill(("settings", "scripts", "folder"), section.folder, is_required=True)
        section = replace(section, folder=str(resolve_path(folder, surroundings)))
        return section, [*texts.warnings, *texts.failures]
    return section, []


def find_server(section: Scripts) -> FeatureServer | None:
    """Return the server that the stored scripts are, if there is a folder of them."""
    return None if section.folder is None else FeatureServer("scripts", section.folder)

"""Configures scripts: `settings.scripts`, with what a script may use up."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, field

from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.section import Section
from dynamic_mcp.config.substitute import Surroundings
from dynamic_mcp.config.types import Duration, Size
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
    return section, []

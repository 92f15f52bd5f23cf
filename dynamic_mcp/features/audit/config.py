"""The audit log: `settings.audit`, with the variables in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import field
from msgspec.structs import replace

from dynamic_mcp.config.section import Section
from dynamic_mcp.config.substitute import Substitution, Surroundings, resolve_path
from dynamic_mcp.config.types import Duration, File

if TYPE_CHECKING:
    from dynamic_mcp.config.resolved import Config

KEEP_S = 180 * 24 * 3600.0


class Audit(Section, frozen=True):
    """The audit log: who called what, with which result."""

    path: Annotated[
        File | None,
        "The directory of the log, relative to the config. Default: one for all configs of the user.",
    ] = None
    arguments: Annotated[
        Literal["keys", "redacted", "full", "off"],
        "What to record of arguments: `keys` their names and a keyed digest, `redacted` all with secrets"
        " masked, `full` all, `off` nothing. Default: keys.",
    ] = "keys"
    keep_s: Annotated[Duration, "How long to keep the log. Default: 180d."] = field(default=KEEP_S, name="keep")
    on_failure: Annotated[
        Literal["continue", "stop-writes"] | None,
        "What to do while nothing can be recorded: `continue`, or refuse all calls that may change something"
        " (`stop-writes`). Default: `stop-writes` if clients authenticate, else `continue`.",
    ] = None
    seal_key: Annotated[
        File | None,
        "The path of a PEM file with an Ed25519 private key that signs the seals of days, relative to the config."
        " Default: seals are not signed.",
    ] = None

    @property
    def stops_writes(self) -> bool:
        """True if calls that may change something are refused while nothing can be recorded."""
        return self.on_failure == "stop-writes"


def resolve(
    section: Audit, file: Path, surroundings: Surroundings, *, authenticates: bool
) -> tuple[Audit | None, list[str]]:
    """Return the settings of the audit log with their variables, and warnings about them."""
    texts = Substitution(surroundings.all_variables())

    def path(key: str, file: Path | None) -> Path | None:
        return None if file is None else resolve_path(texts.fill(("settings", "audit", key), str(file)), surroundings)

    audit = replace(
        section,
        path=path("path", section.path),
        on_failure=section.on_failure or ("stop-writes" if authenticates else "continue"),
        seal_key=path("seal_key", section.seal_key),
    )
    return audit, [*texts.warnings, *texts.failures]


def find_other_directory(config: Config) -> Path | None:
    """Return the directory of the log, if a config keeps it elsewhere than in the state directory."""
    audit = config.settings_of("audit", Audit)
    return None if audit is None else audit.path

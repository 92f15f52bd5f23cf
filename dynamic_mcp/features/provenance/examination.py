"""Asks about the packages of servers, all at once and within a short time, and says what should be known of them.

Nothing is run or installed: registries are asked for what they publish about a package.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from msgspec import Struct

from dynamic_mcp.config.keys import format_path
from dynamic_mcp.doctor.findings import Finding, Level
from dynamic_mcp.features.provenance.packages import ForeignCode, PackageUse, find_package
from dynamic_mcp.features.provenance.records import PackageRecord
from dynamic_mcp.system.text import one_line, pluralize

if TYPE_CHECKING:
    from dynamic_mcp.features.provenance.asking import Registries

# For all packages of a config together.
WITHIN_S = 10.0
_AT_ONCE = 8


class ServerPackage(Struct, frozen=True):
    """What a server runs: its name in the config, and the environment and directory of the launcher."""

    server: str
    words: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: Path | None = None

    @property
    def where(self) -> str:
        return format_path(("mcpServers", self.server))

    @property
    def use(self) -> PackageUse | ForeignCode | None:
        return find_package(self.words)


class Examined(Struct, frozen=True):
    """What was found of one server: its record, or why there is none, or code from elsewhere."""

    package: ServerPackage
    use: PackageUse | ForeignCode
    record: PackageRecord | None = None
    reason: str = ""


async def examine(
    servers: Iterable[ServerPackage],
    *,
    within_s: float = WITHIN_S,
    authorities: bytes | None = None,
) -> list[Examined]:
    """Look up the packages of servers; those without one are left out."""
    chosen = [(each, use) for each in servers if (use := each.use) is not None]
    if not any(isinstance(use, PackageUse) for _, use in chosen):
        return [Examined(each, use) for each, use in chosen]
    module = await asyncio.to_thread(_load)  # httpx2 and cryptography
    gate = asyncio.Semaphore(_AT_ONCE)
    async with module.Registries() as registries:
        return [*await asyncio.gather(*(_examine(*pair, registries, gate, within_s, authorities) for pair in chosen))]


def list_findings(examined: Iterable[Examined], *, now: datetime | None = None) -> list[Finding]:
    """Return the findings about packages: those that could not be asked for the same reason are one."""
    from dynamic_mcp.features.provenance.judgement import judge, judge_name

    findings: list[Finding] = []
    silent: dict[str, list[Examined]] = defaultdict(list)
    for each in examined:
        where = each.package.where
        if isinstance(each.use, ForeignCode):
            what = f"runs code from `{one_line(each.use.text, 150)}`, for which no registry of packages vouches"
            findings.append(Finding(Level.NOTE, where, what))
        elif each.record is None:
            silent[each.reason].append(each)
            findings += judge_name(each.use, where)
        else:
            findings += judge(each.record, where, now or datetime.now(UTC))
    for reason, several in silent.items():
        names = pluralize(len(several), "package")
        where = several[0].package.where if len(several) == 1 else "mcpServers"
        what = f"where {names} {'comes' if len(several) == 1 else 'come'} from could not be asked: {reason}"
        findings.append(Finding(Level.NOTE, where, what))
    return findings


def _load() -> ModuleType:
    """Import what asks and what checks, which takes a moment."""
    for name in ("images", "npm", "pypi"):
        import_module(f"{__package__}.{name}")
    return import_module(f"{__package__}.asking")


async def _examine(
    package: ServerPackage,
    use: PackageUse | ForeignCode,
    registries: Registries,
    gate: asyncio.Semaphore,
    within_s: float,
    authorities: bytes | None,
) -> Examined:
    if isinstance(use, ForeignCode):
        return Examined(package, use)
    from dynamic_mcp.features.provenance.asking import NotAnswered
    from dynamic_mcp.features.provenance.sources import Offline

    try:
        async with asyncio.timeout(within_s), gate:
            return Examined(package, use, await _look_up(package, use, registries, authorities))
    except TimeoutError:
        return Examined(package, use, reason=f"not all registries answered within {within_s:g} s")
    except (NotAnswered, Offline) as exc:
        return Examined(package, use, reason=one_line(str(exc), 300))


async def _look_up(
    package: ServerPackage, use: PackageUse, registries: Registries, authorities: bytes | None
) -> PackageRecord:
    """Return what the registries of a package say of it. Raises NotAnswered and Offline."""
    from dynamic_mcp.features.provenance.asking import NotAnswered
    from dynamic_mcp.features.provenance.images import look_up_image
    from dynamic_mcp.features.provenance.npm import look_up_npm
    from dynamic_mcp.features.provenance.pypi import look_up_pypi
    from dynamic_mcp.features.provenance.sources import npm_source, python_sources

    if not use.name.isascii():
        raise NotAnswered(f"`{one_line(use.name, 100)}` is not the name of a package")
    match use.kind:
        case "npm":
            source = await asyncio.to_thread(npm_source, use, package.environment, package.cwd)
            return await look_up_npm(registries, use, source, authorities=authorities)
        case "pypi":
            sources = await asyncio.to_thread(python_sources, use, package.environment)
            return await look_up_pypi(registries, use, sources, authorities=authorities)
        case "oci":
            return await look_up_image(registries, use)

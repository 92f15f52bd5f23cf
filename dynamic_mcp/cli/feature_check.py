"""The findings of `check` and `doctor` about the features that the config wants."""

from __future__ import annotations

from functools import cache, partial
from inspect import iscoroutine
from typing import TYPE_CHECKING

from dynamic_mcp.features.table import FEATURES

if TYPE_CHECKING:
    from dynamic_mcp.config.resolved import Config
    from dynamic_mcp.doctor.findings import Finding


def check_features(config: Config) -> list[Finding]:
    """Return the findings that connect to nothing."""
    from dynamic_mcp.cli.access_catalogs import known_catalogs
    from dynamic_mcp.cli.runner import run

    known = cache(partial(known_catalogs, config))
    wanted = [feature for feature in FEATURES if feature.check and feature.is_wanted(config)]
    found = (feature.load(feature.check).check(config, known) for feature in wanted)
    return [finding for each in found for finding in (run(each) if iscoroutine(each) else each)]


async def probe_features(config: Config) -> list[Finding]:
    """Return the findings about what features connect to."""
    wanted = [feature for feature in FEATURES if feature.probe and feature.is_wanted(config)]
    return [finding for feature in wanted for finding in await feature.load(feature.probe).probe(config)]

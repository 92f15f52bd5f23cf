"""Checks how much the config lists directly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dynamic_mcp.config.resolved import Config
from dynamic_mcp.doctor.findings import Finding, warning
from dynamic_mcp.groups.catalog import Catalog

_TOKEN_BYTES = 4


def check_max_direct(config: Config, catalogs: Mapping[str, Catalog]) -> Iterator[Finding]:
    """Check that what is known of servers whose tools are all listed directly is within the limit."""
    limit = config.max_direct
    shown = {name: each for name, each in config.presentations.items() if each.direct.is_all or each.direct.is_auto}
    sizes = [
        len(entry)
        for name, presentation in shown.items()
        if name in catalogs
        for tool, entry in catalogs[name].tools.items()
        if presentation.tools.allows(tool)
    ]
    if limit is None or (len(sizes) <= limit.tools and sum(sizes) <= limit.tokens * _TOKEN_BYTES):
        return
    is_for_some = not any(each.direct.is_all for each in shown.values())
    to_whom = " to clients that search tools themselves" if is_for_some else ""
    yield warning(
        "settings.max_direct",
        f"{len(sizes)} tools, about {sum(sizes) // _TOKEN_BYTES} tokens, are to be listed directly{to_whom}, and only"
        f" {limit.tools} or {limit.tokens} tokens are; the others are behind the two tools",
        "name the tools that matter in `direct`, or write `false` to lift the limit",
    )

"""Checks approvals: globs that match nothing, and questions that cannot be answered."""

from __future__ import annotations

from collections.abc import Iterator

from dynamic_mcp.config.keys import Keys, format_path
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.doctor.call_rules import check_globs
from dynamic_mcp.doctor.findings import Finding, KnownCatalogs, warning
from dynamic_mcp.features.approvals.config import settings_of
from dynamic_mcp.groups.catalog import ListKind

_UNMET = "that the server is known to have, so it never asks"
_ROOT: Keys = ("settings", "approval")


def check(config: Config, known: KnownCatalogs) -> Iterator[Finding]:
    """Return the findings about the approvals of a config."""
    if config.asks:
        yield from _check_channels(config)
    if config.access is None:
        return
    catalogs = known()
    for server, globs in config.access.approve.items():
        if server in catalogs and catalogs[server].knows((ListKind.TOOLS,)):
            names = list(catalogs[server].entries(ListKind.TOOLS))
            yield from check_globs(format_path(("mcpServers", server, "approve")), globs, names, unmet=_UNMET)


def _check_channels(config: Config) -> Iterator[Finding]:
    approval = settings_of(config)
    has_others = config.http is not None and bool(config.http.auth)
    if "queue" not in approval.channels:
        what = "clients that cannot show a form are refused what a user must approve"
        yield warning((*_ROOT, "channels"), what, "add `queue`, and answer with `dynamic-mcp approve`")
        return
    if has_others and "client" not in approval.channels:
        who = "only a user of this machine or an approver can"
        what = f"people who connect over HTTP cannot approve their own calls: {who}"
        yield warning((*_ROOT, "channels"), what, "add `client`, so that their AI tools may ask them")
    if not approval.notify.desktop and not approval.notify.command:
        what = "no user is notified of calls in the queue"
        yield warning((*_ROOT, "notify"), what, "give a `command`, or look at `dynamic-mcp approve list`")

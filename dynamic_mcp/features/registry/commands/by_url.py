"""Implements `add URL`: finds the server card of a host and adds the remote that it names, or the endpoint itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from dynamic_mcp.cli.config_editor import add_server
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.runner import run
from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments
from dynamic_mcp.features.registry.cards import FoundCard, FoundCards, find_cards
from dynamic_mcp.features.registry.commands.adding import AddOptions, Origin, add_document
from dynamic_mcp.features.registry.options import names_of
from dynamic_mcp.system.text import one_line

# Labels of hosts that name no server, as in `mcp.example.com`.
_COMMON = frozenset(("mcp", "api", "www", "app"))
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")


def add_by_url(context: Invocation, options: AddOptions) -> int:
    """Add the server that a URL leads to; return the exit code. Raises DynamicMcpError."""
    from dynamic_mcp.web.address_policy import ForbiddenUrl

    url = options.reference
    if options.registry or options.kind == "package":
        raise InvalidArguments("--registry and --package go with the name of a server, not with a URL")
    try:
        with context.out.progress("looking for a server card"):
            found = run(find_cards(url))
    except ForbiddenUrl as exc:
        raise InvalidArguments(f"`{one_line(url, 200)}` {exc}") from exc
    if not found.cards:
        return _add_endpoint(context, options, found)
    for problem in found.problems:
        context.out.say(f"warning: {one_line(problem, 300)}")
    card = _choose(found.cards, options)
    if options.pick in _names_of(card):  # which is none of its remotes
        options = replace(options, pick=None)
    origin = Origin(words=f"by the server card at `{one_line(card.url, 200)}`", url=url)
    return add_document(context, options, card.document, origin)


def _choose(cards: Sequence[FoundCard], options: AddOptions) -> FoundCard:
    """Return the only card, or the one that `--pick` means. Raises InvalidArguments."""
    if len(cards) == 1:
        return cards[0]
    picked = [each for each in cards if options.pick in _words_of(each)]
    if len(picked) == 1:
        return picked[0]
    listed = "".join(f"\n  {each.document.name}: {one_line(each.document.description, 100)}" for each in cards)
    hint = "`--pick NAME` takes one of them"
    raise InvalidArguments(f"`{one_line(options.reference, 200)}` has several servers:{listed}", hint=hint)


def _names_of(card: FoundCard) -> tuple[str, str]:
    return card.document.name, card.document.name.rpartition("/")[2]


def _words_of(card: FoundCard) -> tuple[str, ...]:
    return (*_names_of(card), *(word for each in card.document.remotes for word in names_of(each)))


def _add_endpoint(context: Invocation, options: AddOptions, found: FoundCards) -> int:
    """Add a URL without a card if an MCP server answers there. Raises DynamicMcpError."""
    from dynamic_mcp.oauth.probe import probe

    url = options.reference
    with context.out.progress("asking the server"):
        outcome = run(probe(Remote(kind=None, url=url, headers={})))
    if not outcome.is_open() and outcome.status != 401:
        answer = outcome.reason or f"a request of MCP was answered with HTTP {outcome.status}"
        reasons = "".join(f"\n  {one_line(each, 300)}" for each in (*found.missing, *found.problems, answer))
        hint = "if you know the URL of its endpoint: `dynamic-mcp add NAME --url URL`"
        raise DynamicMcpError(f"`{one_line(url, 200)}` leads to no MCP server:{reasons}", hint=hint)
    server = options.server or _name_of(url)
    entry: dict[str, object] = {"description": options.description} if options.description else {}
    entry["url"] = url
    if options.is_print:
        context.out.print_json({"mcpServers": {server: entry}})
        return 0
    context.out.say(f"`{url}` has no server card, and answers as an MCP server")
    return add_server(context, server, entry, may_replace=options.may_replace)


def _name_of(url: str) -> str:
    """Return a name for the server of a URL: the first label of its host that says something."""
    host = urlsplit(url).hostname or ""
    labels = host.split(".") if not host.replace(".", "").isdigit() else [host]
    telling = [label for label in labels[:-1] if label not in _COMMON] or labels
    return _NOT_IN_NAMES.sub("-", telling[0]).strip("-") or "server"

"""Explains why several copies of a server run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.config.resolve import is_stateful
from dynamic_mcp.config.resolved import Program, Share, Upstream
from dynamic_mcp.config.workspace import launch_of
from dynamic_mcp.groups.audience import Peers
from dynamic_mcp.groups.group import Group
from dynamic_mcp.groups.offers import Offers, kind_of
from dynamic_mcp.system.text import one_line

_MOST_NAMES = 5
_LONGEST_NAME = 40


def explain_copies(group: Group) -> str:
    """Return why a group has several instances; empty if it has one at most."""
    if len(group.instances) < 2:
        return ""
    config = group.config
    match config.share:
        case Share.SESSION if is_stateful(config.upstream):
            return "it keeps the state of one conversation, so each session has its own"
        case Share.SESSION:
            return "`share` is `session`"
        case Share.USER:
            return "each user has one"
    if group.asks:
        return "it has asked its client something, so each session has its own"
    of_users = Counter(each.principal for each in group.instances if isinstance(each, Peers))
    if of_users and max(of_users.values()) == 1:
        return "each user has one"
    hellos = [each.hello for each in group.instances.values() if not each.hello.is_common]
    if not group.sharing.may_be_common:
        return f"{_join(hello.name for hello in hellos)} have a connection each"
    if group.sharing.is_known:
        return "a client over stdio has its own"
    return _explain_kinds(hellos, group.sharing.offers)


def explain_start(upstream: Upstream, first: Upstream) -> str:
    """Return in what a server would be started differently than `first`, without values; empty if in nothing."""
    one, other = launch_of(upstream), launch_of(first)
    if not isinstance(one, Program) or not isinstance(other, Program):
        return "" if one == other else "it is configured differently"
    differences = [
        name
        for name, differs in (("command", one.command != other.command), ("arguments", one.args != other.args))
        if differs
    ]
    if one.cwd != other.cwd:
        differences.append("directory")
    variables = sorted(name for name in {*one.env, *other.env} if one.env.get(name) != other.env.get(name))
    differences += [f"`{one_line(name, _LONGEST_NAME)}`" for name in variables]
    return f"it is started with another {_join(differences)}" if differences else ""


def _explain_kinds(hellos: Sequence[ClientInfo], offers: Offers) -> str:
    """Return what is known of what the server offers to these kinds of clients."""
    names = _join(hello.name for hello in hellos)
    kinds = [kind_of(hello) for hello in hellos]
    digests = {offers.digests.get(kind) for kind in kinds if kind is not None}
    compared = [kind for kind in kinds if kind is not None and kind in offers.digests]
    if len(compared) < len(kinds):
        return f"what it offers {names} is not compared yet"
    if len(digests) > 1:
        return f"it offers {names} different things"
    if len({kind.extensions for kind in compared}) > 1:
        return f"{names} declare different extensions"
    if not all(offers.common_hello(kind) for kind in compared):
        return f"it offers dynamic-mcp other things than {names}"
    return f"it offers {names} the same, and they share the next copy that is started for them"


def _join(names: Iterable[str]) -> str:
    unique = [*dict.fromkeys(one_line(name, _LONGEST_NAME) for name in names)]
    if len(unique) > _MOST_NAMES:
        unique = [*unique[:_MOST_NAMES], f"{len(unique) - _MOST_NAMES} more"]
    return " and ".join(filter(None, [", ".join(unique[:-1]), *unique[-1:]]))

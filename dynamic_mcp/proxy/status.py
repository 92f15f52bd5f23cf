"""The status of a proxy for `dynamic-mcp status`: its sessions, and its groups with their instances."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dynamic_mcp.client import Client, ClientInfo
from dynamic_mcp.config.location import identify
from dynamic_mcp.config.resolved import Share
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.groups.group import Group
from dynamic_mcp.groups.instance import Instance
from dynamic_mcp.mcp import wire
from dynamic_mcp.observe.proxies import NO_SESSION, GroupStatus, InstanceStatus, ProxyStatus, SessionStatus
from dynamic_mcp.proxy.copies import explain_copies, explain_start
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.system.text import one_line

if TYPE_CHECKING:
    from dynamic_mcp.config.read import ReloadCounts

# A client may call itself anything; this much of it is enough.
_LONGEST_NAME = 60
_LONGEST_REASON = 500

Kind = Literal["stdio", "daemon", "http", "ui"]


def read_status(
    proxy: Proxy,
    config: str | Path,
    *,
    configured: Iterable[str] = (),
    kind: Kind = "stdio",
    socket: str = "",
    url: str = "",
    metrics: str = "",
    reloads: ReloadCounts | None = None,
    groups: Sequence[GroupStatus] | None = None,
) -> ProxyStatus:
    """Return the status of a proxy that serves this config file: over which socket, at which URL, if it does.

    `configured` are the groups of the config, which may have nothing that runs before there is a session. `metrics`
    is where its metrics are read. `reloads` tells whether the file has a version that cannot be served. `groups` are
    those of `iterate_groups`, if they were read before.

    A config that is in no file is a text, such as the URL of its server.
    """
    sessions = [read_session(client) for client in proxy.clients]
    groups = [*iterate_groups(proxy)] if groups is None else groups
    known = {group.name for group in groups}
    idle = [GroupStatus(name=name, state=NO_SESSION) for name in configured if name not in known]
    return ProxyStatus(
        config=config if isinstance(config, str) else identify(config),
        kind=kind,
        socket=socket,
        url=url,
        metrics=metrics,
        config_since=0.0 if reloads is None else reloads.last_success,
        config_error="" if reloads is None else one_line(reloads.refusal, _LONGEST_REASON),
        config_error_since=0.0 if reloads is None else reloads.refused_at,
        clients=[session.client for session in sessions],
        sessions=sessions,
        groups=[*groups, *idle],
    )


def iterate_groups(proxy: Proxy) -> Iterator[GroupStatus]:
    """Yield the status of each group of a proxy that is there now."""
    first: dict[str, Group] = {}
    for group in [*proxy.groups]:
        namesake = first.setdefault(group.name, group) if group.config.person is None else group
        copies = explain_copies(group)
        if not copies and namesake is not group:
            copies = explain_start(group.config.upstream, namesake.config.upstream)
        yield read_group(group, copies)


def read_session(client: Client) -> SessionStatus:
    """Return the status of the session of a client."""
    return SessionStatus(
        client=one_line(client.hello.name, _LONGEST_NAME),
        version=one_line(client.hello.version, _LONGEST_NAME),
        title=one_line(wire.text(wire.member(client.hello.client_info, "title")) or "", _LONGEST_NAME),
        subject="" if client.authentication.is_local else one_line(client.principal.subject, _LONGEST_NAME),
        issuer="" if client.authentication.is_local else client.principal.issuer,
        since=client.since,
        calls=client.calls,
        directory=_directory(client),
        only=client.only or "",
        profile=client.profile or "",
        transport=client.transport,
    )


def _directory(client: Client) -> str:
    """Return the directory that the client works in; empty if it is not known."""
    return "" if client.workspace is None else client.workspace.directory


def read_group(group: Group, copies: str = "") -> GroupStatus:
    """Return the status of a group; `copies` says why there are several of its server."""
    person, confinement = group.config.person, group.config.confinement
    return GroupStatus(
        name=group.name,
        person="" if person is None else person.subject,
        person_issuer="" if person is None else person.issuer,
        state=group.state.value,
        reason=group.reason,
        copies=copies,
        confined="" if confinement is None else one_line(confinement.describe(), _LONGEST_REASON),
        missing=one_line(_missing(group), _LONGEST_REASON),
        tools=_count_tools(group.catalog),
        in_flight=group.in_flight,
        calls=group.calls,
        failures=group.failures,
        instances=[
            _read_instance(group.config.share, audience, instance) for audience, instance in group.instances.items()
        ],
    )


def _missing(group: Group) -> str:
    """Return which lists could not be read, and that the tools of a connected server are still awaited."""
    known, is_connected = group.catalog, any(each.is_connected for each in group.instances.values())
    if known is None or (known.knows(ListKind) or not is_connected):
        return "" if known is None else known.failures
    unread = [kind.method for kind in ListKind if not known.knows([kind])]
    return "; ".join(filter(None, (known.failures, f"{', '.join(unread)}: not answered yet")))


def _count_tools(catalog: Catalog | None) -> int | None:
    """Return the number of tools; None where none is known and there may be some."""
    if catalog is None or (not catalog.tools and catalog.may_have_more(ListKind.TOOLS)):
        return None
    return len(catalog.tools)


def _read_instance(share: Share, audience: Hashable, instance: Instance) -> InstanceStatus:
    activity = instance.activity
    taken = activity.durations.percentiles()
    return InstanceStatus(
        shared_by=_name_sharers(share, instance),
        is_exclusive=audience is instance or any(audience is client for client in instance.users),
        clients=[_name(client.hello) for client in instance.users],
        pid=instance.pid,
        state=instance.state.value,
        reason=instance.reason,
        in_flight=activity.in_flight,
        calls=activity.calls,
        failures=activity.failures,
        p50_ms=None if taken is None else round(taken.p50_s * 1000, 3),
        p95_ms=None if taken is None else round(taken.p95_s * 1000, 3),
    )


def _name_sharers(share: Share, instance: Instance) -> str:
    match share:
        case Share.ALL:
            return "everybody"
        case Share.USER:
            return "user"
        case _:
            return "any AI tool" if instance.hello.is_common else _name(instance.hello)


def _name(hello: ClientInfo) -> str:
    return one_line(f"{hello.name} {hello.version}", _LONGEST_NAME)

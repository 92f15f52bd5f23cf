"""What `dynamic-mcp status` shows of a proxy: its sessions, and its groups with their instances."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Literal

from dynamic_mcp.config.location import identify
from dynamic_mcp.config.resolved import Share
from dynamic_mcp.groups.audience import Client
from dynamic_mcp.groups.group import Group
from dynamic_mcp.groups.instance import Instance
from dynamic_mcp.observe.proxies import GroupStatus, InstanceStatus, ProxyStatus, SessionStatus
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.system.text import one_line
from dynamic_mcp.upstream.handshake import ClientHello

# A client may call itself anything; nobody needs more of it.
_LONGEST_NAME = 60

Kind = Literal["stdio", "daemon", "http"]


def read_status(
    proxy: Proxy, config: str | Path, *, kind: Kind = "stdio", socket: str = "", url: str = "", metrics: str = ""
) -> ProxyStatus:
    """Return the status of a proxy that serves this config file: over which socket, at which URL, if it does.

    `metrics` is where its metrics are read.

    A config that is in no file is a text, such as the URL of its server.
    """
    sessions = [_read_session(client) for client in proxy.clients]
    return ProxyStatus(
        config=config if isinstance(config, str) else identify(config),
        kind=kind,
        socket=socket,
        url=url,
        metrics=metrics,
        clients=[session.client for session in sessions],
        sessions=sessions,
        groups=[_read_group(group) for group in proxy.groups],
    )


def _read_session(client: Client) -> SessionStatus:
    return SessionStatus(
        client=one_line(client.hello.name, _LONGEST_NAME),
        version=one_line(client.hello.version, _LONGEST_NAME),
        subject="" if client.authentication.is_local else one_line(client.principal.subject, _LONGEST_NAME),
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


def _read_group(group: Group) -> GroupStatus:
    person = group.config.person
    return GroupStatus(
        name=group.name,
        person="" if person is None else person.subject,
        person_issuer="" if person is None else person.issuer,
        state=group.state.value,
        reason=group.reason,
        tools=None if group.known is None else len(group.known.tools),
        in_flight=group.in_flight,
        calls=group.calls,
        failures=group.failures,
        instances=[
            _read_instance(group.config.share, audience, instance) for audience, instance in group.instances.items()
        ],
    )


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
            return _name(instance.hello)


def _name(hello: ClientHello) -> str:
    return one_line(f"{hello.name} {hello.version}", _LONGEST_NAME)

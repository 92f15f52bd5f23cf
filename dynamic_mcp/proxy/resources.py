"""Resources of all groups: who owns a URI, and the requests that go to the owner.

A URI stays as it is and belongs to the first group that lists it, then to the first whose template may make it.
The same URI of a later group is listed as `dynamic-mcp://<group>/<encoded uri>`, and the same template as
`dynamic-mcp://<group>/<template>`; either can be read.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw

from dynamic_mcp.errors import Disabled, ResourceNotFound
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.groups.groups import Groups
from dynamic_mcp.groups.instance import Group
from dynamic_mcp.groups.lifecycle import DOWN
from dynamic_mcp.mcp import names, uri_template, wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.fanout import first_result
from dynamic_mcp.proxy.lists import WAIT_S, Item, learned, listed, offering
from dynamic_mcp.proxy.result_store import ResultStore
from dynamic_mcp.session.legacy import Session

_BOTH = (ListKind.RESOURCES, ListKind.TEMPLATES)


class Resources:
    """The use cases of resources."""

    def __init__(self, groups: Groups, kept: ResultStore) -> None:
        self._groups = groups
        self._kept = kept
        # (group, its own URI) -> each subscribed session, and the URI as that session wrote it
        self._subscribed: dict[tuple[str, str], dict[Session, str]] = {}

    async def list_all(self, session: Session, frame: Frame) -> Frame:
        """Answer `resources/list`."""
        return await listed(self._groups, ListKind.RESOURCES, frame, self._listed)

    async def list_templates(self, session: Session, frame: Frame) -> Frame:
        """Answer `resources/templates/list`."""
        return await listed(self._groups, ListKind.TEMPLATES, frame, self._listed_templates)

    async def read(self, session: Session, frame: Frame) -> Frame:
        """Answer `resources/read`: the owner's result as it is; where nobody lists the URI, whoever has it."""
        params, uri = _params(frame)
        kept = self._kept.read(session, uri)
        if kept is not None:
            return kept
        owner = await self.owner(uri)
        if owner is not None:
            return await self._send(session, owner, frame.method, params)
        return await self._asked_of_all(session, uri, params)

    async def subscribe(self, session: Session, frame: Frame) -> Frame:
        """Answer `resources/subscribe`, and remember it for the group's next link too."""
        params, uri = _params(frame)
        group, own = await self._owner_or_not_found(uri)
        answer = await self._send(session, (group, own), frame.method, params)
        if not len(answer.error):
            self._subscribed.setdefault((group.name, own), {})[session] = uri
            group.use.is_subscribed = True
        return answer

    async def unsubscribe(self, session: Session, frame: Frame) -> Frame:
        """Answer `resources/unsubscribe`; the upstream hears of it when nobody is subscribed any more."""
        params, uri = _params(frame)
        group, own = await self._owner_or_not_found(uri)
        sessions = self._subscribed.get((group.name, own), {})
        sessions.pop(session, None)
        if sessions:
            return wire.result_frame(b"{}")
        self._subscribed.pop((group.name, own), None)
        group.use.is_subscribed = any(name == group.name for name, _ in self._subscribed)
        return await self._send(session, (group, own), frame.method, params)

    def updated(self, group: Group, frame: Frame) -> None:
        """Tell those who subscribed, by the URI that each of them wrote; a part of a resource goes to all of them."""
        uri = wire.text(wire.member(frame.params, "uri")) or ""
        exact = self._subscribed.get((group.name, uri))
        if exact is not None:
            for session, written in exact.items():
                params = frame.params if written == uri else wire.with_member(frame.params, written, "uri")
                session.notify(Frame(method=frame.method, params=params))
            return
        for session in {each for (name, _), all_ in self._subscribed.items() if name == group.name for each in all_}:
            session.notify(frame)

    def subscriptions(self, group: Group) -> dict[str, Session]:
        """Return the group's own URIs that somebody is subscribed to, each with one of those sessions."""
        return {
            uri: next(iter(sessions))
            for (name, uri), sessions in self._subscribed.items()
            if name == group.name and sessions
        }

    # --- owners ----------------------------------------------------------------------------------------

    async def owner(self, uri: str) -> tuple[Group, str] | None:
        """Return the group that a URI belongs to and the URI as that group knows it. Raises NotFound, Disabled."""
        named = names.split_group_uri(uri)
        if named is not None:
            group = self._groups[named[0]]
            if not group.config.features.resources:
                raise Disabled("resources", group.name)
            return group, named[1]
        groups = offering(self._groups, "resources")
        found = _listing(groups, uri)
        if found is None:
            await learned(groups, _BOTH, WAIT_S)
            found = _listing(groups, uri) or _templating(groups, uri)
        return None if found is None else (found, uri)

    async def template_owner(self, uri: str) -> tuple[Group, str] | None:
        """Return the group that lists this very template, else the owner of the URI."""
        groups = offering(self._groups, "resources")
        found = _listing(groups, uri, ListKind.TEMPLATES)
        if found is None:
            await learned(groups, [ListKind.TEMPLATES], WAIT_S)
            found = _listing(groups, uri, ListKind.TEMPLATES)
        return await self.owner(uri) if found is None else (found, uri)

    async def _owner_or_not_found(self, uri: str) -> tuple[Group, str]:
        owner = await self.owner(uri)
        if owner is None:
            raise ResourceNotFound(uri)
        return owner

    def _listed(self, items: list[Item]) -> list[Raw]:
        groups = offering(self._groups, "resources")
        return [
            entry
            if _listing(groups, uri) is group
            else wire.with_member(entry, names.group_uri(group.name, uri), "uri")
            for group, uri, entry in items
        ]

    def _listed_templates(self, items: list[Item]) -> list[Raw]:
        groups = offering(self._groups, "resources")
        return [
            entry
            if _listing(groups, template, ListKind.TEMPLATES) is group
            else wire.with_member(entry, names.group_template(group.name, template), "uriTemplate")
            for group, template, entry in items
        ]

    # --- requests --------------------------------------------------------------------------------------

    async def _send(
        self, session: Session, owner: tuple[Group, str], method: str, params: Mapping[str, Raw]
    ) -> Frame:
        group, uri = owner
        return await group.request(
            method,
            params if wire.text(params["uri"]) == uri else {**params, "uri": Raw(wire.encode(uri))},
            timeout_s=group.config.timeouts.resources_s,
            caller=session,
            what=f"{method} of `{uri}`",
        )

    async def _asked_of_all(self, session: Session, uri: str, params: Mapping[str, Raw]) -> Frame:
        """Ask all that could know an unlisted URI."""
        groups = [
            group
            for group in offering(self._groups, "resources")
            if group.state not in DOWN and (group.known is None or group.known.may("resources"))
        ]
        found = await first_result(groups, lambda group: self._send(session, (group, uri), "resources/read", params))
        if found is None:
            raise ResourceNotFound(uri)
        return found[1]


def _params(frame: Frame) -> tuple[dict[str, Raw], str]:
    params = wire.members(frame.params)
    uri = wire.text(params.get("uri"))
    if not uri:
        raise wire.Malformed("`uri` of the resource is missing")
    return params, uri


def _listing(groups: list[Group], uri: str, kind: ListKind = ListKind.RESOURCES) -> Group | None:
    return next((group for group in groups if group.known and uri in group.known.entries(kind)), None)


def _templating(groups: list[Group], uri: str) -> Group | None:
    return next(
        (
            group
            for group in groups
            if group.known
            and any(uri_template.matches(each, uri) for each in group.known.entries(ListKind.TEMPLATES))
        ),
        None,
    )

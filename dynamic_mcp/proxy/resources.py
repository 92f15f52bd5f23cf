"""Resources of all groups: who owns a URI, and the requests that go to the owner.

A URI is unchanged and belongs to the first group that lists it, then to the first whose template may make it.
The same URI of a later group is listed as `dynamic-mcp://<group>/<encoded uri>`, and the same template as
`dynamic-mcp://<group>/<template>`; either can be read. The pages of apps, `ui://`, have rules of their own
(`proxy/apps.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from msgspec import Raw, structs

from dynamic_mcp.errors import ResourceNotFound
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.groups.instance import FIND_WITHIN_S, Instance
from dynamic_mcp.mcp import names, uri_template, wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy import skill_uris
from dynamic_mcp.proxy.chain import Chains
from dynamic_mcp.proxy.elicitations import name_asker
from dynamic_mcp.proxy.fanout import first_result
from dynamic_mcp.proxy.listed_names import find_unread
from dynamic_mcp.proxy.lists import Item, answer_list, learn
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.resource_subscriptions import ResourceSubscriptions
from dynamic_mcp.proxy.result_store import ResultStore
from dynamic_mcp.proxy.view import GroupView, View

if TYPE_CHECKING:  # loaded with the first server that has a UI
    from dynamic_mcp.proxy.apps import AppLinks, OpenApps

_PAGES = (ListKind.RESOURCES, ListKind.TEMPLATES, ListKind.TOOLS)
_ALL = (ListKind.RESOURCES, ListKind.TEMPLATES, ListKind.SKILLS)

# A group, and a URI as that group knows it.
Resource = tuple[GroupView, str]


class Resources:
    """The use cases of resources."""

    def __init__(
        self,
        chains: Chains,
        results: ResultStore,
        subscriptions: ResourceSubscriptions,
        open_apps: Callable[[], OpenApps],
    ) -> None:
        self._chains = chains
        self._results = results
        self._subscriptions = subscriptions
        self._open_apps = open_apps

    async def list_resources(self, request: Request) -> Frame:
        """Answer `resources/list`."""
        return await answer_list(request, ListKind.RESOURCES, partial(_rename, request.view), by_page=True)

    async def list_templates(self, request: Request) -> Frame:
        """Answer `resources/templates/list`."""
        return await answer_list(request, ListKind.TEMPLATES, partial(_rename_templates, request.view), by_page=True)

    async def read(self, request: Request) -> Frame:
        """Answer `resources/read` with the owner's unchanged result; for an unlisted URI, ask all groups."""
        params, uri = resource_params(request)
        result = await self._results.read(request.client, uri, request.view)
        if result is not None:
            return result
        owner = await find_resource(request, uri, in_replicas=self._chains.services.replicas is not None)
        if owner is None:
            return await self._ask_all(request, uri, params)
        answer = await self._send(request, owner, params)
        return self._show_page(request, owner, uri, answer) if names.is_ui(owner[1]) else answer

    async def read_from(self, request: Request, owner: Resource, params: Mapping[str, Raw]) -> Frame:
        """Read a resource of a group."""
        return await self._send(request, owner, params)

    async def subscribe(self, request: Request) -> Frame:
        """Answer `resources/subscribe`; the upstream hears of the first subscription."""
        params, uri = resource_params(request)
        return await self.subscribe_to(request, await _owner_or_not_found(request, uri), params, uri)

    async def subscribe_to(self, request: Request, owner: Resource, params: Mapping[str, Raw], uri: str) -> Frame:
        """Subscribe a client to a resource, which the client knows by this URI."""
        group, own_uri = owner
        self._chains.check(request, group, request.method, {"uri": Raw(wire.encode(own_uri))})
        instance = group.group.instance_for(request.client)
        if self._subscriptions.has_subscribers(instance, group.group, own_uri):
            self._subscriptions.add(request.client, group.group, own_uri, uri)
            return wire.result_frame(b"{}")
        try:
            with self._subscriptions.note_request(instance, own_uri):
                await self._subscriptions.wait_for_end(instance, own_uri)
                answer = await self._send(request, owner, params, instance)
        except asyncio.CancelledError:
            self._subscriptions.give_back(group.group, instance, own_uri)
            raise
        if not len(answer.error):
            serving = group.group.current_for(request.client) or group.group  # the config may have changed meanwhile
            self._subscriptions.add(request.client, serving, own_uri, uri)
            if serving.instance_for(request.client) is not instance:
                self._subscriptions.move(request.client, serving, instance)
        return answer

    async def unsubscribe(self, request: Request) -> Frame:
        """Answer `resources/unsubscribe`; the upstream receives the last client's only."""
        params, uri = resource_params(request)
        return await self.unsubscribe_from(request, await _owner_or_not_found(request, uri), params)

    async def unsubscribe_from(self, request: Request, owner: Resource, params: Mapping[str, Raw]) -> Frame:
        """Unsubscribe a client from a resource."""
        group, own_uri = owner
        if not self._subscriptions.remove(request.client, group.group, own_uri) and not group.may_read(own_uri):
            raise ResourceNotFound(wire.text(params["uri"]) or "")
        instance = group.group.instance_for(request.client)
        if self._subscriptions.is_wanted(instance, group.group, own_uri):
            return wire.result_frame(b"{}")
        with self._subscriptions.note_end(instance, own_uri):
            return await self._send(request, owner, params)

    async def _send(
        self, request: Request, owner: Resource, params: Mapping[str, Raw], instance: Instance | None = None
    ) -> Frame:
        group, uri = owner
        written = wire.text(params["uri"]) or ""
        answer = await self._chains.send(
            request,
            group,
            request.method,
            params if written == uri else {**params, "uri": Raw(wire.encode(uri))},
            timeout_s=group.config.timeouts.resources_s,
            label=f"{request.method} of `{uri}`",
            instance=instance,
        )
        if len(answer.error) and group.may_hide and not is_listed(group, uri):
            raise ResourceNotFound(written)  # as for one that is not allowed
        if len(answer.error):
            return name_asker(group.name, request.client, answer)
        is_renamed = (
            written != uri and request.method == "resources/read" and names.split_skill_uri(written) is not None
        )
        return _rename_contents(group, answer) if is_renamed else answer

    def _show_page(self, request: Request, owner: Resource, uri: str, answer: Frame) -> Frame:
        """Return the page of an app under the URI that it was asked for by; it may call its tools from now on."""
        group, own_uri = owner
        if len(answer.error) or not len(wire.member(answer.result, "contents")):
            return answer
        self._open_apps().record_read(request.client, group)
        if own_uri == uri:
            return answer
        from dynamic_mcp.mcp.apps import with_uris
        from dynamic_mcp.proxy.apps import links_of

        links = links_of(request.view)
        shown = with_uris(answer.result, lambda each: uri if each == own_uri else links.shown_uri(group, each))
        return structs.replace(answer, result=shown)

    async def _ask_all(self, request: Request, uri: str, params: Mapping[str, Raw]) -> Frame:
        """Ask all that could know an unlisted URI."""
        owners = [
            (group, own_uri)
            for group, own_uri in skill_uris.candidates(request.view.offering("resources"), uri)
            if not group.is_down and (group.catalog is None or group.catalog.may("resources"))
            if group.may_read(own_uri)
        ]
        found = await first_result(owners, lambda owner: self._send(request, owner, params))
        if found is None:
            for group, own_uri in owners:
                group.refuse_held_resource(own_uri)
            raise ResourceNotFound(uri)
        (group, _), answer = found
        if request.observation is not None:  # several were asked, and this one counts
            request.observation.note_target(group, request.method, params)
        return answer


def is_listed(group: GroupView, uri: str) -> bool:
    """Return whether a group is known to have a resource."""
    return group.catalog is not None and uri in group.catalog.entries(ListKind.RESOURCES)


async def find_resource(request: Request, uri: str, *, in_replicas: bool = False) -> Resource | None:
    """Return the group that a URI belongs to and the URI as that group knows it. Raises NotFound, Disabled.

    Of several groups, it is that of the first one that has it. With `in_replicas`, the client may have been shown the
    URI at another replica, which knows more groups: then those before are waited for.
    """
    named = names.split_group_uri(uri)
    if named is not None:
        group, own_uri = request.view.group(named[0], "resources"), named[1]
        if not group.may_read(own_uri):
            raise ResourceNotFound(uri)
        return group, own_uri
    groups = request.view.offering("resources")
    if names.is_ui(uri):
        return await _find_page(request, [group for group in groups if group.may_read(uri)], uri)
    found = _find_readable(groups, uri)
    if found is None:
        readable = [group for group in groups if group.may_read(uri)]
        await learn(request.client, readable, _ALL, FIND_WITHIN_S)
        found = _find_readable(groups, uri)
        if found is None and skill_uris.read_group(groups, uri) is None:
            matching = _find_matching(readable, uri)
            found = None if matching is None else (matching, uri)
    elif in_replicas and (unknown := [*_unknown_before(found[0], groups, uri)]):
        await learn(request.client, unknown, _ALL, FIND_WITHIN_S)
        found = _find_readable(groups, uri)
    return found


def _unknown_before(owner: GroupView, groups: Iterable[GroupView], uri: str) -> Iterator[GroupView]:
    """Yield the groups before another one whose lists are not known yet."""
    for group in takewhile(lambda each: each is not owner, groups):
        if not (group.catalog and group.catalog.knows(_ALL)) and group.may_read(uri):
            yield group


async def _find_page(request: Request, groups: list[GroupView], uri: str) -> Resource:
    """Return the owner of a page of an app. Raises NotFound.

    No group is asked for a page that none is known to have: what it answers would be shown for another one's tool.
    """
    from dynamic_mcp.proxy.apps import links_of

    found = links_of(request.view).find(uri)
    if found is None:
        await learn(request.client, request.view.offering("resources"), _PAGES, FIND_WITHIN_S)
        found = links_of(request.view).find(uri)
    if found is None:
        made = [group for group in groups if _has_template_of(group, uri)]
        owner = made[0] if len(made) == 1 else find_unread(groups, ListKind.RESOURCES, uri)
        found = None if owner is None else (owner, uri)
    if found is None or not found[0].may_read(found[1]):
        for group in groups:
            group.refuse_held_resource(uri)
        raise ResourceNotFound(uri)
    return found


async def find_template(request: Request, uri: str) -> Resource | None:
    """Return the group that lists this very template, else the owner of the URI."""
    groups = request.view.offering("resources")
    if names.is_ui(uri):
        return await _find_page(request, groups, uri)
    found = _find_listing(groups, uri, ListKind.TEMPLATES)
    if found is None:
        await learn(request.client, groups, [ListKind.TEMPLATES], FIND_WITHIN_S)
        found = _find_listing(groups, uri, ListKind.TEMPLATES)
    if found is None and (owner := await find_resource(request, uri)) is not None:
        return owner
    found = found or find_unread(groups, ListKind.TEMPLATES, uri)
    return None if found is None else (found, uri)


async def _owner_or_not_found(request: Request, uri: str) -> Resource:
    owner = await find_resource(request, uri)
    if owner is None:
        unread = find_unread(request.view.offering("resources"), ListKind.RESOURCES, uri)
        owner = None if unread is None else (unread, uri)
    if owner is None:
        raise ResourceNotFound(uri)
    return owner


def _rename(view: View, items: list[Item]) -> list[Raw]:
    groups = view.offering("resources")
    links = _find_links(view, items)
    return [
        _rename_page(links, group, uri, entry, ListKind.RESOURCES)
        if links is not None and names.is_ui(uri)
        else entry
        if skill_uris.find(groups, uri) == (group, uri) and not names.is_ours(uri)
        else wire.with_member(entry, _group_uri(group, uri), "uri")
        for group, uri, entry in items
    ]


def _rename_templates(view: View, items: list[Item]) -> list[Raw]:
    groups = view.offering("resources")
    links = _find_links(view, items)
    return [
        _rename_page(links, group, template, entry, ListKind.TEMPLATES)
        if links is not None and names.is_ui(template)
        else entry
        if _find_listing(groups, template, ListKind.TEMPLATES) is group and not names.is_ours(template)
        else wire.with_member(entry, names.group_template(group.name, template), "uriTemplate")
        for group, template, entry in items
    ]


def _find_links(view: View, items: list[Item]) -> AppLinks | None:
    """Return whose the pages of apps are; None where there are none among these."""
    if not any(names.is_ui(uri) for _, uri, _ in items):
        return None
    from dynamic_mcp.proxy.apps import links_of

    return links_of(view)


def _rename_page(links: AppLinks, group: GroupView, uri: str, entry: Raw, kind: ListKind) -> Raw:
    shown = links.shown_uri(group, uri)
    return entry if shown == uri else wire.with_member(entry, shown, kind.key)


def resource_params(request: Request) -> tuple[dict[str, Raw], str]:
    """Return the params of a request about one resource, and its URI. Raises Malformed."""
    params = wire.members(request.params)
    uri = wire.text(params.get("uri"))
    if not uri:
        raise wire.Malformed("`uri` of the resource is missing")
    return params, uri


def _find_readable(groups: list[GroupView], uri: str) -> Resource | None:
    """Return the group that lists a URI, and the URI as that group knows it, if the client may read it."""
    found = skill_uris.find(groups, uri)
    if found is None or found[0].may_read(found[1]):
        return found
    others = [group for group in groups if group.may_read(uri)]
    return skill_uris.find(others, uri)


def _rename_contents(group: GroupView, answer: Frame) -> Frame:
    """Return what was read of a skill with the URIs that carry its group; its texts and bytes stay as they are."""
    try:
        elements = wire.elements(wire.member(answer.result, "contents"))
        uris = [wire.text(wire.member(each, "uri")) for each in elements]
        contents = [
            wire.with_member(each, names.group_skill_uri(group.name, uri), "uri") if uri else each
            for uri, each in zip(uris, elements, strict=True)
        ]
    except wire.Malformed:
        return answer
    return Frame(result=wire.with_member(answer.result, contents, "contents"))


def _group_uri(group: GroupView, uri: str) -> str:
    is_skill = uri.startswith("skill://") or (group.catalog is not None and group.catalog.has_skill_file(uri))
    return names.group_skill_uri(group.name, uri) if is_skill else names.group_uri(group.name, uri)


def _find_listing(groups: list[GroupView], uri: str, kind: ListKind) -> GroupView | None:
    return next((group for group in groups if group.catalog and uri in group.catalog.entries(kind)), None)


def _find_matching(groups: list[GroupView], uri: str) -> GroupView | None:
    return next((group for group in groups if _has_template_of(group, uri)), None)


def _has_template_of(group: GroupView, uri: str) -> bool:
    templates = group.catalog.entries(ListKind.TEMPLATES) if group.catalog else ()
    return any(uri_template.matches(template, uri) for template in templates)

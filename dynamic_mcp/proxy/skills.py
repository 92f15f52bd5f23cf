"""Skills of all groups as one list, and what is asked about one of them: it goes to the owner of its URI.

The Skills extension of MCP, `io.modelcontextprotocol/skills` (github.com/modelcontextprotocol/ext-skills,
specification/stable/skills.mdx). A skill is a directory of resources, so it belongs to the feature `resources`, and
what hides a resource hides it. Digests are of bytes: no content changes here, and of the rest only URIs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from mimetypes import guess_type
from typing import TYPE_CHECKING

from msgspec import Raw

from dynamic_mcp.errors import NotFound, ResourceNotFound
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.mcp import names, wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy import skill_uris
from dynamic_mcp.proxy.chain import Chains
from dynamic_mcp.proxy.fanout import first_result
from dynamic_mcp.proxy.lists import answer_list, offset, page_of
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.resources import Resource, find_resource, resource_params
from dynamic_mcp.proxy.view import GroupView

if TYPE_CHECKING:
    from collections.abc import Iterator

_DIRECTORY = "inode/directory"
_KIND = ListKind.SKILLS


class Skills:
    """The use cases of skills."""

    def __init__(self, chains: Chains) -> None:
        self._chains = chains

    async def list_skills(self, request: Request) -> Frame:
        """Answer `skills/list`."""
        groups = request.view.offering("resources")
        return await answer_list(
            request,
            _KIND,
            lambda items: [skill_uris.listed_skill(groups, group, entry) for group, _, entry in items],
            by_page=True,
        )

    async def get(self, request: Request) -> Frame:
        """Answer `skills/get`. Raises NotFound where no group has the skill."""
        params, uri = resource_params(request)
        group, own_uri, answer = await self._ask_owner(request, uri, params, "skill")
        return await self._present_skill(request, (group, own_uri), answer, is_renamed=own_uri != uri)

    async def get_from(self, request: Request, group: GroupView, params: Mapping[str, Raw], uri: str) -> Frame:
        """Answer `skills/get` for a client that sees this group alone."""
        try:
            answer = await self._send(request, (group, uri), params)
        except ResourceNotFound:
            raise NotFound("skill", uri) from None
        await self._judge(request, (group, uri), answer)
        return answer

    async def read_directory(self, request: Request) -> Frame:
        """Answer `resources/directory/read`. Raises NotFound where no group has the directory."""
        params, uri = resource_params(request)
        group, own_uri, answer = await self._ask_owner(request, uri, params, "directory", self._list_files)
        rename = None if own_uri == uri else group.name
        return present_directory(group, answer, rename=rename)

    async def read_directory_of(
        self, request: Request, group: GroupView, params: Mapping[str, Raw], uri: str
    ) -> Frame:
        """Answer `resources/directory/read` for a client that sees this group alone."""
        try:
            return present_directory(group, await self._send(request, (group, uri), params))
        except ResourceNotFound:
            raise NotFound("directory", uri) from None

    # --- the owner -------------------------------------------------------------------------------------

    async def _ask_owner(
        self,
        request: Request,
        uri: str,
        params: Mapping[str, Raw],
        noun: str,
        answer_here: Callable[[Resource, Mapping[str, Raw]], Frame | None] = lambda owner, params: None,
    ) -> tuple[GroupView, str, Frame]:
        """Return the owner of a URI, its own URI and its answer, or the one that can be given here."""
        try:
            owner = await find_resource(request, uri, in_replicas=self._chains.services.replicas is not None)
            if owner is not None and skill_uris.has_skills(owner[0]):
                answer = answer_here(owner, params)
                return *owner, await self._send(request, owner, params) if answer is None else answer
            found = None if owner is not None else await self._ask_all(request, uri, params)
        except ResourceNotFound:
            found = None
        if found is None:
            raise NotFound(noun, uri)
        (group, own_uri), answer = found
        return group, own_uri, answer

    async def _ask_all(self, request: Request, uri: str, params: Mapping[str, Raw]) -> tuple[Resource, Frame] | None:
        """Ask all that could know an unlisted skill."""
        owners = [
            (group, own_uri)
            for group, own_uri in skill_uris.candidates(request.view.offering("resources"), uri)
            if not group.is_down and skill_uris.has_skills(group) and group.may_read(own_uri)
        ]
        return await first_result(owners, lambda owner: self._send(request, owner, params))

    async def _send(self, request: Request, owner: Resource, params: Mapping[str, Raw]) -> Frame:
        group, uri = owner
        return await self._chains.send(
            request,
            group,
            request.method,
            {**params, "uri": Raw(wire.encode(uri))} if wire.text(params["uri"]) != uri else params,
            timeout_s=group.config.timeouts.resources_s,
            label=f"{request.method} of `{uri}`",
        )

    # --- answers ---------------------------------------------------------------------------------------

    async def _present_skill(self, request: Request, owner: Resource, answer: Frame, *, is_renamed: bool) -> Frame:
        await self._judge(request, owner, answer)
        entry = wire.member(answer.result, "skill") if len(answer.result) else wire.ABSENT
        if not len(entry):
            return answer
        try:
            group = owner[0]
            shown = skill_uris.listed_skill(request.view.offering("resources"), group, entry)
            if is_renamed and shown is entry:
                shown = skill_uris.renamed_skill(group, entry)
            return answer if shown is entry else Frame(result=wire.with_member(answer.result, shown, "skill"))
        except wire.Malformed:
            return answer

    async def _judge(self, request: Request, owner: Resource, answer: Frame) -> None:
        """Have a skill judged that is another one than was listed. Raises DefinitionHeld."""
        group, uri = owner
        if group.group.admission.gate is None or not len(answer.result):
            return
        listed = group.group.catalog.entries(_KIND).get(uri) if group.group.catalog else None
        entry = wire.member(answer.result, "skill")
        if listed is not None and wire.value(listed) != wire.value(entry):
            await group.reread(request.client, [_KIND])
            group.refuse_held_request(request.method, {"uri": Raw(wire.encode(uri))})

    def _list_files(self, owner: Resource, params: Mapping[str, Raw]) -> Frame | None:
        """Return a directory of a skill as its entry has it, for a server that has no directories itself."""
        group, uri = owner
        catalog = group.catalog
        if catalog is None or catalog.may("extensions", _KIND.extension, "directoryRead"):
            return None
        files = dict.fromkeys(each for entry in catalog.entries(_KIND).values() for each in _files_below(entry, uri))
        if not files:
            raise NotFound("directory", uri)
        start = offset(params.get("cursor", wire.NULL))
        return wire.result_frame(page_of("resources", [_child(f"{uri}/{name}") for name in files], start, {}))


def present_directory(group: GroupView, answer: Frame, *, rename: str | None = None) -> Frame:
    """Return a directory without what the client may not read; its URIs carry the group that `rename` names."""
    if not len(answer.result) or (rename is None and not group.may_hide):
        return answer
    try:
        children = wire.elements(wire.member(answer.result, "resources"))
        rows = [(wire.text(wire.member(each, "uri")) or "", each) for each in children]
    except wire.Malformed:
        return answer
    shown = [
        each if rename is None else wire.with_member(each, names.group_skill_uri(rename, uri), "uri")
        for uri, each in rows
        if group.may_read(uri)
    ]
    return Frame(result=wire.with_member(answer.result, shown, "resources"))


def _files_below(skill: Raw, directory: str) -> Iterator[str]:
    """Yield the names of what is in a directory of a skill; those of directories end with a slash."""
    try:
        uris = [wire.text(wire.member(each, "uri")) or "" for each in wire.elements(wire.member(skill, "resources"))]
    except wire.Malformed:
        return
    for uri in uris:
        if uri.startswith(f"{directory}/"):
            name, slash, _ = uri.removeprefix(f"{directory}/").partition("/")
            yield f"{name}{slash}"


def _child(uri: str) -> Raw:
    """Return the resource of a file or of a directory, whose URI here ends with a slash."""
    is_directory = uri.endswith("/")
    uri = uri.removesuffix("/")
    kind = _DIRECTORY if is_directory else "text/markdown" if uri.endswith(".md") else guess_type(uri)[0]
    return Raw(
        wire.encode({"uri": uri, "name": uri.rpartition("/")[2], **({} if kind is None else {"mimeType": kind})})
    )

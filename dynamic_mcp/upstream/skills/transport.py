"""An MCP server made of folders of skills: it answers a link itself, in this process, and notices changed files."""

from __future__ import annotations

import asyncio
import logging
import os
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from mimetypes import guess_type

from dynamic_mcp.config.resolved import SkillFolders
from dynamic_mcp.errors import INVALID_PARAMS, Unreachable
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.system.text import os_reason
from dynamic_mcp.upstream.own_transport import FolderTransport
from dynamic_mcp.upstream.skills.folder import Skill, SkillFile, SkillSet, read_file, read_folders, stamps_of, uri_of

log = logging.getLogger(__name__)

EXTENSION = "io.modelcontextprotocol/skills"
_TTL_MS = 10_000
# What reads files, or tells of all skills, of which there may be thousands.
_IN_A_THREAD = frozenset(("resources/read", "resources/list", "skills/list"))
_MARKDOWN = "text/markdown"
_MAX_NAMED = 20

Handle = Callable[[Frame], Mapping[str, object] | Frame]


class SkillTransport(FolderTransport):
    """Answers the requests of one link from folders, which it watches until the link is closed."""

    list_changed = "notifications/resources/list_changed"

    def __init__(self, group: str, folders: SkillFolders) -> None:
        super().__init__(group, log)
        self._folders = folders.folders
        self._skills = SkillSet()
        self._answers: Mapping[str, Handle] = {
            "resources/list": self._list_resources,
            "resources/templates/list": lambda _: {"resourceTemplates": []},
            "resources/read": self._read_resource,
            "resources/directory/read": self._read_directory,
            "skills/list": self._list_skills,
            "skills/get": self._get_skill,
        }

    async def start(self) -> None:
        """Read the folders. Raises Unreachable if one of them cannot be read."""
        for folder in self._folders:
            try:
                await asyncio.to_thread(_check_folder, folder)
            except OSError as exc:
                raise Unreachable(self.group, f"the folder `{folder}` cannot be read: {os_reason(exc)}") from exc
        await self._reread()
        self._start_watch()

    # --- the folders -----------------------------------------------------------------------------------

    def _stamp(self) -> object:
        return stamps_of(self._folders)

    def _read(self) -> Sequence[str]:
        self._skills = read_folders(self._folders, self._skills)
        return self._skills.complaints

    # --- answers ---------------------------------------------------------------------------------------

    async def _handle(self, frame: Frame) -> Frame | None:
        handle = self._answers.get(frame.method)
        if handle is None:
            return None
        if frame.method in _IN_A_THREAD:
            return await asyncio.to_thread(_call, handle, frame)
        return _call(handle, frame)

    def _introduce(self) -> Mapping[str, object]:
        return {
            "capabilities": {
                "resources": {"listChanged": True},
                "extensions": {EXTENSION: {"directoryRead": True}},
            },
            "serverInfo": {"name": self.group, "version": "1"},
            "instructions": self._describe(),
        }

    def _describe(self) -> str:
        names = [skill.name for skill in self._skills.skills.values()]
        more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
        return f"Skills: {', '.join(names[:_MAX_NAMED]) or 'none yet'}{more}."

    def _list_resources(self, frame: Frame) -> Mapping[str, object]:
        return {"resources": [_resource(skill.files[0], skill) for skill in self._skills.skills.values()]}

    def _list_skills(self, frame: Frame) -> Mapping[str, object]:
        return {"skills": [_entry(skill) for skill in self._skills.skills.values()], **_hint()}

    def _get_skill(self, frame: Frame) -> Mapping[str, object] | Frame:
        uri = _uri(frame)
        found = next((each for each in self._skills.skills.values() if uri_of(each.files[0].path) == uri), None)
        if found is None:
            return wire.error_frame(INVALID_PARAMS, f"no skill is served at {uri[:200]}")
        return {"skill": _entry(found), **_hint()}

    def _read_resource(self, frame: Frame) -> Mapping[str, object] | Frame:
        uri = _uri(frame)
        found = self._skills.files.get(uri)
        try:
            if found is not None:
                _check_link(found, self._folders)
                return {"contents": [{"uri": uri, **_content(found, read_file(found.file))}]}
        except OSError as exc:
            return wire.error_frame(INVALID_PARAMS, f"{uri[:200]} cannot be read: {os_reason(exc)}")
        return wire.error_frame(INVALID_PARAMS, f"there is no resource {uri[:200]}")

    def _read_directory(self, frame: Frame) -> Mapping[str, object] | Frame:
        uri = _uri(frame)
        children = self._skills.directories.get(uri)
        if children is None:
            return wire.error_frame(INVALID_PARAMS, f"{uri[:200]} is not a directory resource")
        return {"resources": [self._child(each) for each in children]}

    def _child(self, uri: str) -> Mapping[str, object]:
        if uri.endswith("/"):
            uri = uri.removesuffix("/")
            return {"uri": uri, "name": uri.rpartition("/")[2], "mimeType": "inode/directory"}
        return _resource(self._skills.files[uri])


def _call(handle: Handle, frame: Frame) -> Frame:
    try:
        answer = handle(frame)
    except wire.Malformed as exc:
        return wire.error_frame(INVALID_PARAMS, str(exc))
    return answer if isinstance(answer, Frame) else wire.result_frame(answer)


def _check_folder(folder: str) -> None:
    with os.scandir(folder):
        pass


def _check_link(file: SkillFile, folders: tuple[str, ...]) -> None:
    """Check that a file has not become a link out of its folder since it was read. Raises OSError."""
    real = os.path.realpath(file.file)
    if not any(real.startswith(os.path.realpath(folder).rstrip(os.sep) + os.sep) for folder in folders):
        raise OSError("it is a link out of the folder")


def _uri(frame: Frame) -> str:
    uri = wire.text(wire.member(frame.params, "uri")) if len(frame.params) else None
    if not uri:
        raise wire.Malformed("`uri` is missing")
    return uri


def _hint() -> Mapping[str, object]:
    return {"ttlMs": _TTL_MS, "cacheScope": "public"}


def _entry(skill: Skill) -> Mapping[str, object]:
    files = [{"uri": uri_of(each.path), "digest": each.digest, "size": each.size} for each in skill.files]
    return {"uri": files[0]["uri"], "frontmatter": skill.front_matter, "resources": files}


def _resource(file: SkillFile, skill: Skill | None = None) -> Mapping[str, object]:
    kind = _kind_of(file)
    members = {"uri": uri_of(file.path), "name": file.path.rpartition("/")[2], "size": file.size}
    members |= {} if kind is None else {"mimeType": kind}
    return members if skill is None else {**members, "name": skill.name, "description": skill.description}


def _kind_of(file: SkillFile) -> str | None:
    return _MARKDOWN if file.path.endswith(".md") else guess_type(file.path)[0]


def _content(file: SkillFile, data: bytes) -> Mapping[str, object]:
    """Return a file's content: as text where its bytes are one, so that they stay the same."""
    kind = _kind_of(file)
    members = {} if kind is None else {"mimeType": kind}
    try:
        return {**members, "text": data.decode()}
    except UnicodeDecodeError:
        return {**members, "blob": b64encode(data).decode()}

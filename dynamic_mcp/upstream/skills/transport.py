"""An MCP server made of folders of skills: it answers a link itself, in this process, and notices changed files."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from mimetypes import guess_type

from dynamic_mcp.config.resolved import SkillFolders
from dynamic_mcp.errors import INVALID_PARAMS, METHOD_NOT_FOUND, Unreachable
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.system.text import os_reason
from dynamic_mcp.upstream.own_transport import OwnTransport
from dynamic_mcp.upstream.skills.folder import Skill, SkillFile, SkillSet, read_file, read_folders, stamps_of, uri_of

log = logging.getLogger(__name__)

EXTENSION = "io.modelcontextprotocol/skills"
# How often the folders are compared with what was read of them.
LOOK_EVERY_S = 2.0
# Large folders are compared less often: after so many times as long as it took.
_TIMES_AS_LONG = 20
_TTL_MS = 10_000
# What reads files, or tells of all skills, of which there may be thousands.
_IN_A_THREAD = frozenset(("resources/read", "resources/list", "skills/list"))
_MARKDOWN = "text/markdown"
_MAX_NAMED = 20

Handle = Callable[[Frame], Mapping[str, object] | Frame]


class SkillTransport(OwnTransport):
    """Answers the requests of one link from folders, which it watches until the link is closed."""

    def __init__(self, group: str, folders: SkillFolders) -> None:
        super().__init__(group, log)
        self._folders = folders.folders
        self._skills = SkillSet()
        self._stamps: object = None
        self._answers: Mapping[str, Handle] = {
            "initialize": self._introduce,
            "ping": lambda _: {},
            "resources/list": self._list_resources,
            "resources/templates/list": lambda _: {"resourceTemplates": []},
            "resources/read": self._read,
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
        self._tasks.create(self._watch(), name=f"skills of {self.group}")

    # --- the folders -----------------------------------------------------------------------------------

    async def _watch(self) -> None:
        took_s = 0.0
        while True:
            await asyncio.sleep(max(LOOK_EVERY_S, _TIMES_AS_LONG * took_s))
            began = time.monotonic()
            with contextlib.suppress(OSError):
                if await asyncio.to_thread(stamps_of, self._folders) != self._stamps:
                    await self._reread()
                    self._announce()
            took_s = time.monotonic() - began

    async def _reread(self) -> None:
        before = self._skills
        self._stamps = await asyncio.to_thread(stamps_of, self._folders)  # what changes now is read again
        self._skills = await asyncio.to_thread(read_folders, self._folders, before)
        for complaint in self._skills.complaints:
            if complaint not in before.complaints:
                self._logger.warning("group %s: %s", self.group, complaint)

    def _announce(self) -> None:
        self._deliver(wire.notification_line("notifications/resources/list_changed"))

    # --- answers ---------------------------------------------------------------------------------------

    async def _handle(self, frame: Frame) -> Frame:
        handle = self._answers.get(frame.method)
        if handle is None:
            return wire.error_frame(METHOD_NOT_FOUND, f"there is no method `{frame.method[:100]}`")
        if frame.method in _IN_A_THREAD:
            return await asyncio.to_thread(_call, handle, frame)
        return _call(handle, frame)

    def _introduce(self, frame: Frame) -> Mapping[str, object]:
        return {
            "protocolVersion": wire.member(frame.params, "protocolVersion"),
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

    def _read(self, frame: Frame) -> Mapping[str, object] | Frame:
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

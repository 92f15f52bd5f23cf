"""The journey of era_journey.py with the Python SDK before version 2: `python era_older_client.py PLAN`.

Runs in an environment of its own, where `mcp` is another one than here: to the type checker it is anything.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from .era_journey import Journey, Json, run
else:  # started by its path, as a client is
    from era_journey import Journey, Json, run

mcp: Any = importlib.import_module("mcp")
stdio: Any = importlib.import_module("mcp.client.stdio")
http: Any = importlib.import_module("mcp.client.streamable_http")
types: Any = importlib.import_module("mcp.types")


class OlderPeer:
    """The client, and its user, who says `me` to all."""

    session: Any

    def __init__(self, me: str) -> None:
        self.progress: asyncio.Queue[float] = asyncio.Queue()
        self.logged: asyncio.Queue[Json] = asyncio.Queue()
        self.updated: asyncio.Queue[str] = asyncio.Queue()
        self.changed: asyncio.Queue[str] = asyncio.Queue()
        self._me = me

    async def call(self, name: str, arguments: Json, *, has_progress: bool = False) -> Json:
        report = self._report if has_progress else None
        return _json(await self.session.call_tool(name, arguments, progress_callback=report))

    async def cancel_call(self, name: str, arguments: Json) -> None:
        raise NotImplementedError("this SDK tells no server that it has given up a call")

    async def names_of(self, kind: str) -> list[str]:
        if kind == "tools":
            return [tool.name for tool in (await self.session.list_tools()).tools]
        if kind == "resources":
            return [str(resource.uri) for resource in (await self.session.list_resources()).resources]
        if kind == "templates":
            return [each.uriTemplate for each in (await self.session.list_resource_templates()).resourceTemplates]
        return [prompt.name for prompt in (await self.session.list_prompts()).prompts]

    async def read(self, uri: str) -> Json:
        return _json(await self.session.read_resource(uri))

    async def prompt(self, name: str, arguments: Json) -> Json:
        return _json(await self.session.get_prompt(name, arguments))

    async def complete(self, name: str, argument: str, value: str) -> Json:
        ref = types.PromptReference(type="ref/prompt", name=name)
        return _json(await self.session.complete(ref, {"name": argument, "value": value}))

    async def want_logs(self) -> None:
        await self.session.set_logging_level("debug")

    @asynccontextmanager
    async def listening(self, uri: str) -> AsyncIterator[None]:
        if uri:
            await self.session.subscribe_resource(uri)
        yield
        if uri:
            await self.session.unsubscribe_resource(uri)

    async def elicit(self, context: object, params: Any) -> object:
        return types.ElicitResult(action="accept", content={"answer": self._me, "name": self._me})

    async def sample(self, context: object, params: Any) -> object:
        return types.CreateMessageResult(role="assistant", model="m", content={"type": "text", "text": self._me})

    async def list_roots(self, context: object) -> object:
        return types.ListRootsResult(roots=[{"uri": "file:///home", "name": self._me}])

    async def log(self, params: Any) -> None:
        self.logged.put_nowait(_json(params))

    async def hear(self, message: Any) -> None:
        said = getattr(message, "root", None)
        if isinstance(said, types.ResourceUpdatedNotification):
            self.updated.put_nowait(str(said.params.uri))
        elif isinstance(said, types.PromptListChangedNotification):
            self.changed.put_nowait("prompts")

    async def _report(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.put_nowait(progress)


def _json(model: Any) -> Json:
    return model.model_dump(mode="json", by_alias=True)


def _connect(target: Json) -> Any:
    if isinstance(target, str):
        return http.streamable_http_client(target)
    return stdio.stdio_client(stdio.StdioServerParameters(command=target[0], args=target[1:], env=dict(os.environ)))


async def travel(connection: Json, mode: str, me: str) -> Json:
    """Make the journeys of one connection; there is only one mode."""
    peer = OlderPeer(me)
    diaries: dict[str, Json] = {}
    try:
        async with (
            _connect(connection["target"]) as (read, write, *_),
            mcp.ClientSession(
                read,
                write,
                client_info=types.Implementation(name=me, version="1"),
                elicitation_callback=peer.elicit,
                sampling_callback=peer.sample,
                list_roots_callback=peer.list_roots,
                logging_callback=peer.log,
                message_handler=peer.hear,
            ) as session,
        ):
            peer.session = session
            revision = str((await session.initialize()).protocolVersion)
            for cell, words in connection["walks"].items():
                diaries[cell] = {"revision": revision, **await Journey(peer, words, me).write()}
    except BaseExceptionGroup:  # this SDK cannot close while a message comes
        if len(diaries) < len(connection["walks"]):
            raise
    return diaries


if __name__ == "__main__":
    run(travel)

"""The journey of era_journey.py with the Python SDK: `python era_client.py PLAN`; the mode is `auto` or `legacy`."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from mcp import Client, MCPDeprecationWarning, StdioServerParameters
from mcp.client.session import ClientRequestContext
from mcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    Implementation,
    ListRootsResult,
    LoggingMessageNotificationParams,
    PromptListChangedNotification,
    PromptReference,
    ResourceUpdatedNotification,
    Root,
    TextContent,
)
from pydantic import BaseModel, FileUrl

if TYPE_CHECKING or __package__:
    from .era_journey import Journey, Json, run
else:  # started by its path, as a client is
    from era_journey import Journey, Json, run

_IS_MODERN = "2026"


class SdkPeer:
    """The client, and its user, who says `me` to all."""

    def __init__(self, target: Json, mode: str, me: str) -> None:
        self.progress: asyncio.Queue[float] = asyncio.Queue()
        self.logged: asyncio.Queue[Json] = asyncio.Queue()
        self.updated: asyncio.Queue[str] = asyncio.Queue()
        self.changed: asyncio.Queue[str] = asyncio.Queue()
        self._me = me
        if not isinstance(target, str):
            target = StdioServerParameters(command=target[0], args=target[1:], env=dict(os.environ))
        self.client = Client(
            target,
            mode=mode,
            client_info=Implementation(name=me, version="1"),
            elicitation_callback=self._elicit,
            sampling_callback=self._sample,
            list_roots_callback=self._list_roots,
            logging_callback=self._log,
            log_level="debug",
            message_handler=self._hear,
        )

    @property
    def revision(self) -> str:
        return self.client.protocol_version

    async def call(self, name: str, arguments: Json, *, has_progress: bool = False) -> Json:
        report = self._report if has_progress else None
        return _json(await self.client.call_tool(name, arguments, progress_callback=report))

    async def cancel_call(self, name: str, arguments: Json) -> None:
        waiting = asyncio.create_task(self.call(name, arguments, has_progress=True))
        await self.progress.get()
        waiting.cancel()
        await asyncio.wait([waiting])

    async def names_of(self, kind: str) -> list[str]:
        if kind == "tools":
            return [tool.name for tool in (await self.client.list_tools()).tools]
        if kind == "resources":
            return [resource.uri for resource in (await self.client.list_resources()).resources]
        if kind == "templates":
            return [each.uri_template for each in (await self.client.list_resource_templates()).resource_templates]
        return [prompt.name for prompt in (await self.client.list_prompts()).prompts]

    async def read(self, uri: str) -> Json:
        return _json(await self.client.read_resource(uri))

    async def prompt(self, name: str, arguments: Json) -> Json:
        return _json(await self.client.get_prompt(name, arguments))

    async def complete(self, name: str, argument: str, value: str) -> Json:
        return _json(await self.client.complete(PromptReference(name=name), {"name": argument, "value": value}))

    async def want_logs(self) -> None:
        if not self.revision.startswith(_IS_MODERN):
            await self.client.set_logging_level("debug")

    @asynccontextmanager
    async def listening(self, uri: str) -> AsyncIterator[None]:
        if not self.revision.startswith(_IS_MODERN):
            if uri:
                await self.client.subscribe_resource(uri)
            yield
            if uri:
                await self.client.unsubscribe_resource(uri)
            return
        wanted = [uri] if uri else []
        async with self.client.listen(prompts_list_changed=not uri, resource_subscriptions=wanted):
            yield

    async def _elicit(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"answer": self._me, "name": self._me})

    async def _sample(self, context: ClientRequestContext, params: CreateMessageRequestParams) -> CreateMessageResult:
        return CreateMessageResult(role="assistant", model="m", content=TextContent(type="text", text=self._me))

    async def _list_roots(self, context: ClientRequestContext) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=FileUrl("file:///home"), name=self._me)])

    async def _log(self, params: LoggingMessageNotificationParams) -> None:
        self.logged.put_nowait(_json(params))

    async def _hear(self, message: object) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            self.updated.put_nowait(message.params.uri)
        elif isinstance(message, PromptListChangedNotification):
            self.changed.put_nowait("prompts")

    async def _report(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.put_nowait(progress)


def _json(model: BaseModel) -> Json:
    return model.model_dump(mode="json", by_alias=True)


async def travel(connection: Json, mode: str, me: str) -> Json:
    """Make the journeys of one connection."""
    peer = SdkPeer(connection["target"], mode, me)
    async with peer.client:
        walks = connection["walks"].items()
        diaries = {cell: await Journey(peer, words, me).write() for cell, words in walks}
        return {cell: {"revision": peer.revision, **diary} for cell, diary in diaries.items()}


if __name__ == "__main__":
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    run(travel)

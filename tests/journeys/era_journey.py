"""The journey of a client of either era through one server, step by step, and the diary of it.

It knows neither an SDK nor the proxy: `era_client.py` and `era_older_client.py` give it a `Peer`. A step that fails
is noted with its error, and the journey goes on.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

Json = Any  # whatever JSON comes
Words = dict[str, Json]  # how a server says what the journey wants of it; era_servers.py has them
_STEP_WITHIN_S = 15.0


class Peer(Protocol):
    """A connected client. Results are as they are in JSON."""

    progress: asyncio.Queue[float]
    logged: asyncio.Queue[Json]
    updated: asyncio.Queue[str]
    changed: asyncio.Queue[str]

    async def call(self, name: str, arguments: Json, *, has_progress: bool = False) -> Json:
        """Call a tool."""
        ...

    async def cancel_call(self, name: str, arguments: Json) -> None:
        """Call a tool, and give the call up once it reports progress."""
        ...

    async def names_of(self, kind: str) -> list[str]:
        """Return the names, URIs or templates in a list."""
        ...

    async def read(self, uri: str) -> Json:
        """Read a resource."""
        ...

    async def prompt(self, name: str, arguments: Json) -> Json:
        """Get a prompt."""
        ...

    async def complete(self, name: str, argument: str, value: str) -> Json:
        """Complete an argument of a prompt."""
        ...

    async def want_logs(self) -> None:
        """Ask for log messages, where that is a request of its own."""
        ...

    def listening(self, uri: str) -> AbstractAsyncContextManager[None]:
        """Hear of this resource, and of lists that change."""
        ...


class Journey:
    """One client and one server. `me` is what the client's user says to each question."""

    def __init__(self, peer: Peer, words: Words, me: str) -> None:
        self._peer = peer
        self._words = words
        self._me = me

    async def write(self) -> Json:
        """Go through all steps, and return the diary."""
        steps: dict[str, Callable[[], Awaitable[Json]]] = {
            "tools": self._tools,
            "echo": self._echo,
            "content": self._content,
            "failed": self._failed,
            "progress": self._progress,
            "logged": self._logged,
            "elicited": lambda: self._asked("elicit"),
            "sampled": lambda: self._asked("sample"),
            "roots": lambda: self._asked("roots"),
            "resources": self._resources,
            "prompts": self._prompts,
            "completed": self._completed,
            "updated": self._updated,
            "changed": self._changed,
            "cancelled": self._cancelled,
        }
        diary: dict[str, Json] = {}
        for name, step in steps.items():
            try:
                async with asyncio.timeout(_STEP_WITHIN_S):
                    diary[name] = await step()
            except Exception as exc:  # noqa: BLE001 it is noted
                diary[name] = f"{type(exc).__name__}: {exc}"[:300]
        return diary

    async def _call(self, step: str, *, has_progress: bool = False) -> Json:
        name, arguments = self._named(step)
        return await self._peer.call(name, arguments, has_progress=has_progress)

    def _named(self, step: str) -> tuple[str, Json]:
        name, arguments = self._words[step][:2]
        group = self._words["group"]
        return (
            ("call_dynamic_tool", {"group": group, "name": name, "args": arguments}) if group else (name, arguments)
        )

    def _prompt_name(self) -> str:
        group, name = self._words["group"], self._words["prompt"][0]
        return f"{group}__{name}" if group else str(name)

    # --- steps -----------------------------------------------------------------------------------------

    async def _tools(self) -> Json:
        wanted = [self._words[step][0] for step in ("echo", "elicit", "progress")]
        if not self._words["group"]:
            names = await self._peer.names_of("tools")
        else:
            shown = await self._peer.call("get_dynamic_tools", {"group": self._words["group"]})
            names = [tool["name"] for tool in json.loads(text_of(shown))["tools"]]
        return [name for name in wanted if name in names]

    async def _echo(self) -> Json:
        return text_of(await self._call("echo"))

    async def _content(self) -> Json:
        return [block["type"] for block in (await self._call("content"))["content"]]

    async def _failed(self) -> Json:
        return (await self._call("fail"))["isError"]

    async def _progress(self) -> Json:
        await self._call("progress", has_progress=True)
        return [await self._peer.progress.get() for _ in range(3)]

    async def _logged(self) -> Json:
        while not self._peer.logged.empty():  # of earlier journeys
            self._peer.logged.get_nowait()
        await self._peer.want_logs()
        await self._call("log")
        message = await self._peer.logged.get()
        return [message["level"], str(message.get("logger")).rpartition("/")[2]]

    async def _asked(self, step: str) -> Json:
        return self._me in text_of(await self._call(step))

    async def _resources(self) -> Json:
        uri = self._words["resource"]
        (first, *_) = (await self._peer.read(uri))["contents"]
        has_templates = bool(await self._peer.names_of("templates"))
        return [uri in await self._peer.names_of("resources"), first["text"], has_templates]

    async def _prompts(self) -> Json:
        name = self._prompt_name()
        got = await self._peer.prompt(name, self._words["prompt"][1])
        return [name in await self._peer.names_of("prompts"), got["messages"][0]["content"]["text"]]

    async def _completed(self) -> Json:
        return (await self._peer.complete(self._prompt_name(), *self._words["complete"]))["completion"]["values"]

    async def _updated(self) -> Json:
        uri = self._words["resource"]
        async with self._peer.listening(uri):
            await self._call("update")
            while await self._peer.updated.get() != uri:  # of an earlier journey, as others may update that too
                pass
            return True

    async def _changed(self) -> Json:
        async with self._peer.listening(""):
            await self._call("change")
            return await self._peer.changed.get()

    async def _cancelled(self) -> Json:
        await self._peer.cancel_call(*self._named("wait"))
        marker = self._words["cancelled"][2]
        while marker not in text_of(await self._call("cancelled")):  # noqa: ASYNC110 - the server raises no event
            await asyncio.sleep(0.05)
        return True


def text_of(result: Json) -> str:
    """Return the text of a tool's result."""
    return str(result["content"][0]["text"])


def run(travel: Callable[[Json, str, str], Awaitable[Json]]) -> None:
    """Make the journeys of the plan on the command line, and print `{cell: diary}`.

    A plan is `{"me": …, "mode": …, "connections": [{"target": URL or [COMMAND…], "walks": {cell: words}}]}`.
    """

    plan = json.loads(Path(sys.argv[1]).read_text())

    async def all_journeys() -> None:
        diaries: dict[str, Json] = {}
        for connection in plan["connections"]:
            try:
                diaries |= await travel(connection, plan["mode"], plan["me"])
            except Exception as exc:  # noqa: BLE001 it is noted
                diaries |= {cell: {"connected": f"{type(exc).__name__}: {exc}"[:300]} for cell in connection["walks"]}
        print(json.dumps(diaries))

    asyncio.run(all_journeys())

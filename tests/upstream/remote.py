"""Links to remote servers for tests: opened as a group opens them, without the group."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Raw

from dynamic_mcp.client import Caller, ClientInfo
from dynamic_mcp.config.resolved import GroupConfig, Remote, Timeouts
from dynamic_mcp.errors import LinkLost
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.upstream.any_link import AnyLink
from dynamic_mcp.upstream.link import LinkOwner
from dynamic_mcp.upstream.open import open_link
from tests.fake_parties import Ear
from tests.fakes import Json, group_config
from tests.program import BOUND_S


def remote(
    url: str, kind: Literal["http", "sse"] | None = "http", headers: Mapping[str, str] | None = None, **changes: Any
) -> GroupConfig:  # Any: fields of GroupConfig
    """Return the config of a group that is reached at a URL."""
    patient = Timeouts(BOUND_S, BOUND_S, BOUND_S, BOUND_S)
    return group_config(
        "far", **{"upstream": Remote(kind=kind, url=url, headers=headers or {}), "timeouts": patient, **changes}
    )


@contextlib.asynccontextmanager
async def open_remote(
    config: GroupConfig, *, listener: LinkOwner | None = None, home: Caller | None = None
) -> AsyncIterator[AnyLink]:
    """Open a link and close it in the end."""
    link, _ = await open_link(config, listener or Ear(home), ClientInfo())
    try:
        yield link
    finally:
        await link.close()


class WaitingEar(Ear):
    """An ear whose owner can wait for what it hears."""

    def __init__(self) -> None:
        super().__init__()
        self._frame_arrival = asyncio.Event()
        self._loss = asyncio.Event()

    def receive_notification(
        self, frame: Frame, callers: Sequence[Caller] | None, *, may_be_late: bool = False
    ) -> None:
        super().receive_notification(frame, callers)
        self._frame_arrival.set()

    def link_lost(self, link: AnyLink, error: LinkLost) -> None:
        super().link_lost(link, error)
        self._loss.set()

    async def wait_for_frame(self) -> None:
        """Wait for a frame that belongs to no call."""
        async with asyncio.timeout(BOUND_S):
            await self._frame_arrival.wait()

    async def wait_for_loss(self) -> None:
        """Wait for the end of the link."""
        async with asyncio.timeout(BOUND_S):
            await self._loss.wait()


async def call(
    link: AnyLink, name: str, *, timeout_s: float = BOUND_S, caller: Caller | None = None, **arguments: Json
) -> Json:
    """Call a tool and return the answer."""
    params = {"name": Raw(wire.encode(name)), "arguments": Raw(wire.encode(arguments))}
    frame = await link.request("tools/call", params, timeout_s=timeout_s, caller=caller, label=f"`{name}`")
    return json.loads(bytes(frame.result)) if len(frame.result) else {"error": json.loads(bytes(frame.error))}


async def text(link: AnyLink, name: str, **arguments: Json) -> str:
    """Call a tool and return the text of its result."""
    content: str = (await call(link, name, **arguments))["content"][0]["text"]
    return content

"""Observers hear of each version of the config, of what it changes, and of those that are refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from dynamic_mcp.config.read import ServedConfig, read_all
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.host.observing import Observing
from dynamic_mcp.host.reloader import Reloader
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.request import Event
from dynamic_mcp.proxy.workspaces import Workspaces
from tests.fakes import BOUND_S
from tests.recorder import Recorder, observe

Json = Any  # whatever JSON a test writes down
SECRET = "s3cret-value"


class Unchanging(Observing):
    """Observes as the test does, whatever the config says."""

    def apply(self, config: Config) -> None:
        pass


class WaitingRecorder(Recorder):
    """Can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.news = asyncio.Event()

    def note(self, event: Event) -> None:
        super().note(event)
        self.news.set()

    async def hears(self, name: str) -> dict[str, Any]:  # Any: whatever is in an event
        async with asyncio.timeout(BOUND_S):
            while name not in self.names:
                self.news.clear()
                await self.news.wait()
        return self.named(name)[-1]


def tree(**settings: Json) -> Json:
    return {"mcpServers": {}, "settings": {"audit": True, **settings}}


def write(file: Path, content: Json) -> None:
    file.write_text(json.dumps(content))


@contextlib.asynccontextmanager
async def reloading(file: Path) -> AsyncIterator[tuple[Reloader, WaitingRecorder]]:
    """Reload a config file when the reloader is told to."""
    write(file, tree())
    configs = read_all(file, {})
    proxy = Proxy(configs.base)
    seen = WaitingRecorder()
    observe(proxy, seen)
    served, observing = ServedConfig(configs), Unchanging(proxy)
    workspaces = Workspaces(served, proxy)
    served.listeners += [observing.reload, workspaces.apply]
    reloader = Reloader(served, proxy)
    watching = asyncio.create_task(reloader.watch.run())
    try:
        yield reloader, seen
    finally:
        watching.cancel()
        await asyncio.wait([watching])
        workspaces.close()
        await proxy.close()


async def test_a_reload_is_told_with_what_it_changes_and_the_hash_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "dynamic-mcp.json"
    async with reloading(file) as (reloader, seen):
        changed = tree(access={"default": "deny"}, log={"level": "debug"})
        write(file, {**changed, "mcpServers": {"a": {"command": SECRET, "enabled": False}}})
        reloader.watch.reload()
        told = await seen.hears("access.changed")

        assert told == {"changes": ("access rules added", "`default` changed")}
        (reload,) = seen.named("config.reload")
        assert (reload["added"], reload["settings"]) == (("a",), ("log", "access"))
        assert reload["hash"] == sha256(file.read_bytes()).hexdigest()
        assert SECRET not in repr(seen.events)


async def test_the_hash_is_that_of_the_bytes_in_the_file_whatever_their_encoding(tmp_path: Path) -> None:
    file = tmp_path / "dynamic-mcp.json"
    async with reloading(file) as (reloader, seen):
        file.write_text(json.dumps(tree(log={"level": "debug"})), encoding="utf-16")
        reloader.watch.reload()
        told = await seen.hears("config.reload")
        assert told["hash"] == sha256(file.read_bytes()).hexdigest()


async def test_a_refused_version_is_told_by_the_place_of_its_first_error(tmp_path: Path) -> None:
    file = tmp_path / "dynamic-mcp.json"
    async with reloading(file) as (reloader, seen):
        write(file, tree(http={"public_url": SECRET}))
        reloader.watch.reload()

        assert await seen.hears("config.refused") == {"outcome": "failure", "where": "settings.http.public_url"}
        assert SECRET not in repr(seen.events)

"""The life of plug-ins: opened before their config is used, kept over a reload, and closed within a bound."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dynamic_mcp.errors import ConfigError
from dynamic_mcp.features.plugins.config import Plugin
from dynamic_mcp.middleware import CallRequest, CallResult, Middleware, Next, Services
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import BOUND_S, Client, Opener, config_of, group_config, text_of
from tests.features.plugins.scene import proxy_of, upstream, use

EVENTS: list[str] = []
HERE = __name__


@pytest.fixture(autouse=True)
def _forget() -> None:
    EVENTS.clear()


class Living(Middleware):
    """Notes its life, and puts its name in front of results."""

    async def open(self, options: Any, services: Services) -> None:
        self.name = options.get("name", "x")
        EVENTS.append(f"open {self.name}")
        assert services.log.name.startswith("dynamic_mcp.plugin.")

    async def call(self, request: CallRequest, next: Next) -> CallResult:
        result = await next(request)
        return CallResult.text(f"{self.name}: {result.content[0]['text']}")

    async def close(self) -> None:
        EVENTS.append(f"close {self.name}")


class Broken(Middleware):
    async def open(self, options: Any, services: Services) -> None:
        raise ValueError("`level` is missing")


class NeverClosing(Middleware):
    async def close(self) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue


class NeedsArguments(Middleware):
    def __init__(self, more: int) -> None:
        self.more = more


class NoPlugin:
    pass


def _living(name: str, **changes: Any) -> Plugin:
    return use(Living, options={"name": name}, **changes)


def _config(*plugins: Plugin) -> Any:
    return config_of(group_config("a"), middleware=plugins)


async def test_they_are_opened_in_order_and_closed_in_reverse() -> None:
    async with proxy_of(_config(_living("one"), _living("two")), Opener(a=[upstream()])):
        assert EVENTS == ["open one", "open two"]
    assert EVENTS[2:] == ["close two", "close one"]


async def test_one_that_does_not_end_holds_up_nothing() -> None:
    async with asyncio.timeout(BOUND_S):
        async with proxy_of(_config(use(NeverClosing), _living("one")), Opener(a=[upstream()])):
            pass
    assert EVENTS == ["open one", "close one"]


async def test_what_a_reload_leaves_as_it_is_is_not_opened_again() -> None:
    before, after = _config(_living("one"), _living("two")), _config(_living("two", timeout_s=1.0), _living("three"))
    async with proxy_of(before, Opener(a=[upstream()])) as proxy:
        client = Client(proxy)
        await client.initialize()
        await proxy.prepare(after)
        assert text_of(await client.call("a", "echo", {"text": "x"})) == "one: two: x"
        proxy.apply(after)
        assert text_of(await client.call("a", "echo", {"text": "x"})) == "two: three: x"
        assert EVENTS == ["open one", "open two", "open three", "close one"]
        proxy.apply(_config())
        assert text_of(await client.call("a", "echo", {"text": "x"})) == "x"
    assert sorted(EVENTS[4:]) == ["close three", "close two"]


async def test_a_call_in_flight_ends_with_the_plug_in_that_it_began_with() -> None:
    server = upstream()
    server.answers.pop("tools/call")
    async with proxy_of(_config(_living("old")), Opener(a=[server])) as proxy:
        client = Client(proxy)
        await client.initialize()
        calling = asyncio.create_task(client.call("a", "echo"))
        asked = await server.hears("tools/call")
        after = _config(_living("new"))
        await proxy.prepare(after)
        proxy.apply(after)
        assert EVENTS == ["open old", "open new"]
        server.say({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": [{"type": "text", "text": "x"}]}})
        async with asyncio.timeout(BOUND_S):
            assert text_of(await calling) == "old: x"
    assert EVENTS[2:] == ["close old", "close new"]


async def test_a_config_whose_plug_in_cannot_be_opened_changes_nothing() -> None:
    async with proxy_of(_config(_living("one")), Opener(a=[upstream()])) as proxy:
        client = Client(proxy)
        await client.initialize()
        with pytest.raises(ConfigError) as caught:
            await proxy.prepare(_config(_living("one"), _living("two"), use(Broken)))
        assert caught.value.where == "settings.middleware[2]"
        assert "`level` is missing" in caught.value.problem
        assert text_of(await client.call("a", "echo", {"text": "x"})) == "one: x"
        assert EVENTS == ["open one", "open two", "close two"]


async def test_one_that_was_never_opened_lets_nothing_pass() -> None:
    server = upstream()
    proxy = Proxy(_config(_living("one")), opener=Opener(a=[server]))
    client = Client(proxy)
    await client.initialize()
    assert "is not open" in text_of(await client.call("a", "echo", {"text": "x"}))
    assert server.heard("tools/call") == []
    await proxy.close()


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of installed packages."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if "acme" in name:
            del sys.modules[name]


def _install(packages: Path, name: str, entry: str, module: str = "") -> None:
    info = packages / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[dynamic_mcp.middleware]\n{entry}\n")
    if module:
        (packages / f"{name}.py").write_text(module)


async def test_a_plug_in_is_found_by_the_name_that_its_package_gives_it(packages: Path) -> None:
    _install(packages, "acme", f"acme-guard = {HERE}:Living")
    async with proxy_of(_config(Plugin("acme-guard", options={"name": "acme"})), Opener(a=[upstream()])):
        assert EVENTS == ["open acme"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("acme-gard", "no installed package offers a plug-in of this name"),
        ("acme-twice", "several packages offer a plug-in of this name"),
        ("acme-lost", "there is no module `acme_lost`"),
        ("acme-typo", "cannot be imported: SyntaxError"),
        ("acme-needs", "cannot be imported: ModuleNotFoundError: No module named 'acme_other'"),
        ("acme-exits", "cannot be imported: SystemExit: 3"),
        (f"{HERE}:Missing", f"`{HERE}` has no `Missing`"),
        (f"{HERE}:NoPlugin", "is not a subclass of `dynamic_mcp.middleware.Middleware`"),
        (f"{HERE}:EVENTS", "is not a subclass of `dynamic_mcp.middleware.Middleware`"),
        (f"{HERE}:NeedsArguments", "TypeError"),
        (f"{HERE}:Broken", "cannot be opened: `level` is missing"),
        ("no_such_package.inner:Class", "there is no module `no_such_package.inner`"),
    ],
)
async def test_what_is_in_the_way_is_an_error_of_the_config(name: str, says: str, packages: Path) -> None:
    _install(packages, "acme", f"acme-guard = {HERE}:Living\nacme-twice = {HERE}:Living")
    _install(packages, "acme_more", f"acme-twice = {HERE}:Broken\nacme-lost = acme_lost:Plugin")
    _install(packages, "acme_typo", "acme-typo = acme_typo:Plugin", module="def\n")
    _install(packages, "acme_needs", "acme-needs = acme_needs:Plugin", module="import acme_other\n")
    _install(packages, "acme_exits", "acme-exits = acme_exits:Plugin", module="import sys; sys.exit(3)\n")
    proxy = Proxy(config_of(group_config("a")), opener=Opener(a=[upstream()]))
    with pytest.raises(ConfigError) as caught:
        await proxy.prepare(_config(Plugin(name)))
    await proxy.close()
    assert caught.value.exit_code == 2
    assert f"plug-in `{name}`" in str(caught.value)
    assert says in str(caught.value)
    assert ("did you mean `acme-guard`?" in str(caught.value)) == (name == "acme-gard")

"""Two versions of the program are one service while one takes the place of the other."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import dynamic_mcp
from tests.features.cluster.replicas import RoundRobin
from tests.features.cluster.test_processes import Caller, Service, check_calls, have_answered
from tests.http_client import HttpClient
from tests.http_program import HttpProgram, serving_http
from tests.mcp_client import McpClient
from tests.program import full, text_of
from tests.web import web_client

pytestmark = [
    pytest.mark.full,
    pytest.mark.alone_only("its clients connect by URL"),
    pytest.mark.skipif(os.name != "posix", reason="there are no signals"),
]
_VERSION = "9.0.0"
_CLIENTS = 8
# What the later version does otherwise: its ids have another form, and the head of a hop has one more member.
_CHANGES = {
    "features/cluster/session_ids.py": [('_VERSION = "d1"', '_VERSION = "d2"'), ("(?!1", "(?!2")],
    "features/cluster/hop.py": [('    root_path: str = ""\n', '    root_path: str = ""\n    since: str = "9"\n')],
}


@pytest.fixture
def later(tmp_path: Path) -> Path:
    """The folder of a copy of the program that is of a later version."""
    source, folder = Path(str(dynamic_mcp.__file__)).parent, tmp_path / "later"
    shutil.copytree(source, folder / "dynamic_mcp", ignore=shutil.ignore_patterns("*.pyc*", "__pycache__"))
    (folder / "dynamic_mcp" / "__init__.py").write_text(f'"""A copy."""\n\n__version__ = "{_VERSION}"\n')
    for name, changes in _CHANGES.items():
        file = folder / "dynamic_mcp" / name
        text = file.read_text()
        for old, new in changes:
            assert old in text, f"{name} has no `{old}` any more"
            text = text.replace(old, new)
        file.write_text(text)
    return folder


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """The server tier, in front of which no gateway runs yet."""
    folder = tmp_path / "server"
    folder.mkdir()
    async with serving_http(folder, {"up": {**full(), "share": "all"}}) as server:
        yield Service(tmp_path, server)


async def test_sessions_of_both_versions_are_served_by_both(service: Service, later: Path) -> None:
    async with service.gateway("a") as old, service.gateway("b", later) as new:
        assert await _version_of(new) == _VERSION
        assert await _version_of(old) == dynamic_mcp.__version__
        kinds = set()
        async with RoundRobin(*service.urls) as http:
            for n in range(4):
                client = McpClient(http)
                await client.initialize()
                kinds.add(client.id.split(".", 2)[0] + client.id.split(".", 2)[1])
                said = [await client.call("up", "echo", {"text": f"{n}-{each}"}) for each in range(4)]
                assert [text_of(each["result"]) for each in said] == [f"{n}-{each}" for each in range(4)]
                assert await client.delete() == 204
        assert kinds == {"d1a", "d2b"}


async def test_a_session_that_was_made_up_in_the_form_of_another_version_does_not_exist(service: Service) -> None:
    async with service.gateway("a"), service.gateway("b"), HttpClient(service.urls[0]) as http:
        client = McpClient(http)
        await client.initialize()
        _, replica, rest = client.id.split(".", 2)
        for made_up in (f"d2.b.{rest}", f"d2.{replica}.{rest}", f"d2.nobody.{rest}", "d2.b", "d2"):
            client.id = made_up
            response = await client.post(client.message("ping"))
            await response.read()
            assert response.status == 404


async def test_a_rolling_restart_with_a_later_version_loses_no_call_that_could_be_answered(
    service: Service, later: Path
) -> None:
    enough = asyncio.Event()
    callers = [Caller(number, service.urls) for number in range(_CLIENTS)]
    async with contextlib.AsyncExitStack() as stack:
        running = {name: await _run(stack, service, name) for name in ("a", "b")}
        tasks = [asyncio.create_task(each.run(enough)) for each in callers]
        await have_answered(callers, 100)
        for name, old in running.items():
            await old.aclose()  # with the signal, and exit code 0
            await _run(stack, service, name, later)
            await have_answered(callers, sum(len(each.answered) for each in callers) + 100)
        assert {await _version_of(each) for each in service.programs.values()} == {_VERSION}
        enough.set()
        await asyncio.gather(*tasks)
    await check_calls(service, callers)
    # A connection can be reset between the last look at who waits to be accepted and the end of the listener, and one
    # that was not used for a second can be closed as a request comes. Both last microseconds, once for each replica.
    assert sum(len(each.may_have_run) for each in callers) <= len(service.urls)


async def _run(
    stack: contextlib.AsyncExitStack, service: Service, name: str, package: Path | None = None
) -> contextlib.AsyncExitStack:
    """Run a gateway; what is returned ends it."""
    end = await stack.enter_async_context(contextlib.AsyncExitStack())
    await end.enter_async_context(service.gateway(name, package))
    return end


async def _version_of(program: HttpProgram) -> str:
    async with web_client() as http:
        version: str = (await http.get(f"{program.own_origin}/ready")).json()["version"]
        return version

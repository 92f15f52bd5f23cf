"""Several processes that serve one config on one port: their sessions, their servers, and the end of each."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from dynamic_mcp.system.worker import WorkerIdentity
from tests.http_client import HttpClient
from tests.http_program import HttpProgram, serving_http
from tests.journeys.remote_server import free_port
from tests.mcp_client import McpClient, McpStream, Refused
from tests.program import BOUND_S, Json, full, text_of
from tests.web import web_client

pytestmark = [
    pytest.mark.alone_only("its clients connect by URL"),
    pytest.mark.skipif(os.name != "posix", reason="Windows has no ports that processes share"),
]
_ELICITS: Json = {"elicitation": {"form": {}}}


def workers_of(program: HttpProgram) -> dict[str, int]:
    """Return the processes of the workers that listen for links, by their names (Linux)."""
    children = Path(f"/proc/{program.process.pid}/task/{program.process.pid}/children").read_text().split()
    paths = {line.split()[6]: line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines()[1:]}
    found = {}
    for each in children:
        with contextlib.suppress(OSError):  # it has just ended
            for link in Path(f"/proc/{each}/fd").iterdir():
                inode = link.readlink().name.removeprefix("socket:[").removesuffix("]")
                if match := re.search(r"/(\d+)-home\.sock$", paths.get(inode, "")):
                    found[f"w{match[1]}"] = int(each)
    return found


async def until_gone(*processes: int) -> None:
    async with asyncio.timeout(BOUND_S):
        while any(_is_there(each) for each in processes):  # noqa: ASYNC110 - another process raises no event
            await asyncio.sleep(0.05)


def _is_there(process: int) -> bool:
    """Return whether a process runs; one that has ended may wait for its new parent to notice."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


class Clients:
    """Clients of one service, each at the worker that it names."""

    def __init__(self, program: HttpProgram) -> None:
        self._program = program
        self._open: list[HttpClient] = []

    async def at(self, worker: str, capabilities: Json = None, headers: dict[str, str] | None = None) -> McpClient:
        """Return a client whose session is at this worker; the system chooses one for each connection."""
        for _ in range(200):
            http = HttpClient(self._program.origin)
            self._open.append(http)
            client = McpClient(http, headers=headers)
            await client.initialize(capabilities)
            if client.id.split(".")[1] == worker:
                return client
            await client.delete()
        raise AssertionError(f"no connection came to {worker}")

    async def close(self) -> None:
        for each in self._open:
            await each.close()


@contextlib.asynccontextmanager
async def serving(folder: Path, *options: str, **root: Json) -> AsyncIterator[tuple[HttpProgram, Clients]]:
    """Run two workers with one server that can do everything."""
    servers = root.pop("servers", {"up": full()})
    async with serving_http(folder, servers, "--workers", "2", *options, **root) as program:
        await until_all_serve(program)
        clients = Clients(program)
        try:
            yield program, clients
        finally:
            await clients.close()


async def until_all_serve(program: HttpProgram) -> None:
    async with asyncio.timeout(BOUND_S):
        while set(workers_of(program)) != {"w0", "w1"}:  # noqa: ASYNC110 - another process raises no event
            await asyncio.sleep(0.05)
        while await _answers(program) < 2:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.05)


async def _answers(program: HttpProgram) -> int:
    """Return how many workers answer."""
    names = set()
    for _ in range(40):
        with contextlib.suppress(OSError, Refused):
            async with HttpClient(program.origin) as http:
                client = McpClient(http)
                await client.initialize()
                names.add(client.id.split(".")[1])
                await client.delete()
        if len(names) == 2:
            break
    return len(names)


async def received(client: McpClient) -> list[Json]:
    """Return what the server has received so far."""
    answer = await client.call("up", "record")
    return [json.loads(line) for line in json.loads(text_of(answer["result"]))]


def texts_of(heard: list[Json]) -> list[str]:
    """Return the texts that the server was to echo."""
    calls = [each["params"] for each in heard if each["method"] == "tools/call"]
    return [each["arguments"]["text"] for each in calls if each["name"] == "echo"]


async def test_the_sessions_of_all_workers_share_one_server_and_each_has_its_own_answers(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, clients):
        both = [await clients.at("w0"), await clients.at("w1")]
        texts = [f"{n}-{i}" for i in range(20) for n in range(2)]
        answers = await asyncio.gather(
            *(both[n % 2].call("up", "echo", {"text": text}) for n, text in enumerate(texts))
        )
        assert [text_of(each["result"]) for each in answers] == texts
        heard = await received(both[0])
        assert sum(each.get("method") == "initialize" for each in heard) == 1
        assert {*texts_of(heard)} == {*texts}


async def test_a_request_reaches_its_session_by_whichever_worker_it_comes(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, clients):
        one, other = await clients.at("w0"), await clients.at("w1")
        one.http, other.http = other.http, one.http
        assert text_of((await one.call("up", "echo", {"text": "x"}))["result"]) == "x"
        assert await other.delete() == 204
        with pytest.raises(Refused) as refused:
            await other.call("up", "echo", {"text": "x"})
        assert refused.value.status == 404


async def test_a_server_asks_the_client_of_the_call_at_whatever_worker_that_is(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, clients):
        both = [await clients.at("w0", _ELICITS), await clients.at("w1", _ELICITS)]
        for client in both:  # one after the other: from the first question on, each has a copy of its own
            assert await ask(client) == client.id
        assert await asyncio.gather(*map(ask, both)) == [each.id for each in both]


@pytest.mark.full
async def test_no_client_gets_the_question_of_another_one(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, clients):
        several = [await clients.at(name, _ELICITS) for name in ("w0", "w1", "w1", "w0")]
        answers = await asyncio.gather(
            *map(try_to_ask, several)
        )  # the first questions could be meant for any of them
        assert all(answer in (client.id, "refused") for answer, client in zip(answers, several, strict=True))
        assert await asyncio.gather(*map(ask, several)) == [each.id for each in several]


async def try_to_ask(client: McpClient) -> str:
    """Call a tool that asks, answer if the question comes, and return what the server got: an id, or a refusal."""
    arguments = {"group": "up", "name": "elicit", "args": {"key": client.id}}
    message = client.message("tools/call", {"name": "call_dynamic_tool", "arguments": arguments})
    response = await client.post(message)
    if response.is_stream:
        return await _answer(client, message["id"], McpStream(response))
    assert b"no client can be asked" in await response.read()
    return "refused"


async def ask(client: McpClient) -> str:
    """Call a tool that asks, answer with the client's own id, and return what the server got."""
    arguments = {"group": "up", "name": "elicit", "args": {"key": client.id}}
    id, stream = await client.begin("tools/call", {"name": "call_dynamic_tool", "arguments": arguments})
    return await _answer(client, id, stream)


async def _answer(client: McpClient, id: int, stream: McpStream) -> str:
    question = await stream.hear("elicitation/create")
    await client.reply(question, {"action": "accept", "content": {"name": client.id}})
    line: Json = json.loads(text_of((await stream.until(id))["result"]))
    return str(line["result"]["content"]["name"])


_TOKENS = {name: f"token-of-{name}-k3W9x2QmZ7vR4tLpB8nY5cJd6sHg1fAe" for name in ("ann", "bob")}
_AUTH = [{"kind": "bearer", "tokens": [{"subject": name, "token": token} for name, token in _TOKENS.items()]}]
_HEADERS = {name: {"Authorization": f"Bearer {token}"} for name, token in _TOKENS.items()}


@contextlib.asynccontextmanager
async def serving_users(folder: Path) -> AsyncIterator[tuple[HttpProgram, Clients]]:
    """Run two workers with a server of which each user has one."""
    servers = {"up": {**full(), "share": "user"}}
    async with serving_http(folder, servers, "--workers", "2", settings={"http": {"auth": _AUTH}}) as program:
        clients = Clients(program)
        try:
            yield program, clients
        finally:
            await clients.close()


async def test_users_do_not_share_a_server_that_is_for_one_user(tmp_path: Path) -> None:
    async with serving_users(tmp_path) as (_, clients):
        first = await clients.at("w0", headers=_HEADERS["ann"])
        second = await clients.at("w1", headers=_HEADERS["ann"])
        third = await clients.at("w1", headers=_HEADERS["bob"])
        for number, client in enumerate((first, second, third)):
            await client.call("up", "echo", {"text": f"of {number}"})
        texts = [texts_of(await received(client)) for client in (first, second, third)]
        assert texts == [["of 0", "of 1"], ["of 0", "of 1"], ["of 2"]]


@pytest.mark.full
async def test_users_are_told_apart_after_a_reload_when_the_home_of_their_server_is_killed(
    tmp_path: Path,
) -> None:
    async with serving_users(tmp_path) as (program, clients):
        number = WorkerIdentity(0, 2, "", "").home_of("up")
        both = [await clients.at(f"w{1 - number}", headers=_HEADERS[name]) for name in ("ann", "bob")]
        for client in both:
            await client.call("up", "echo", {"text": "before"})
        config = tmp_path / "dynamic-mcp.json"
        config.write_text(config.read_text().replace('"share"', '"description": "another", "share"'))
        await until_logged(program, "group up changed in the config and keeps running")
        home = workers_of(program)[f"w{number}"]
        os.kill(home, signal.SIGKILL)
        await until_gone(home)
        for number, client in enumerate(both):
            await until_echoed(client, f"of {number}")
        assert [texts_of(await received(client)) for client in both] == [["of 0"], ["of 1"]]


async def until_logged(program: HttpProgram, words: str, count: int = 2) -> None:
    """Wait until each worker has logged this."""
    async with asyncio.timeout(BOUND_S):
        while program.log().count(words) < count:  # noqa: ASYNC110 - a file raises no event
            await asyncio.sleep(0.05)


async def until_echoed(client: McpClient, text: str) -> None:
    async with asyncio.timeout(BOUND_S):
        while await _echoes(client, "up", text) != text:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.1)


async def test_a_killed_worker_takes_only_its_own_sessions_with_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as (program, clients):
        lost, kept = await clients.at("w0"), await clients.at("w1")
        lost.http = kept.http  # its own connection would break
        await kept.call("up", "echo", {"text": "x"})
        killed = workers_of(program)["w0"]
        os.kill(killed, signal.SIGKILL)
        await until_gone(killed)
        with contextlib.suppress(Refused):  # w1 may learn by this that w0 has ended
            await lost.call("up", "echo", {"text": "x"})
        with pytest.raises(Refused) as refused:
            await lost.call("up", "echo", {"text": "x"})
        assert refused.value.status == 404
        assert text_of((await kept.call("up", "echo", {"text": "y"}))["result"]) == "y"
        await until_all_serve(program)
        again = await clients.at("w0")
        assert text_of((await again.call("up", "echo", {"text": "z"}))["result"]) == "z"


@pytest.mark.full
async def test_nothing_is_left_of_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    async with serving(tmp_path) as (program, clients):
        client = await clients.at("w1")
        await client.call("up", "echo", {"text": "x"})
        workers = workers_of(program)
        await program.kill()
        await until_gone(*workers.values())


async def test_all_workers_serve_another_version_of_the_config(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, clients):
        both = [await clients.at("w0"), await clients.at("w1")]
        config = tmp_path / "dynamic-mcp.json"
        config.write_text(json.dumps({"mcpServers": {"other": full()}}))
        for client in both:
            async with asyncio.timeout(BOUND_S):
                while await _echoes(client, "other", "x") != "x":  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.1)


@pytest.mark.full
async def test_the_metrics_are_those_of_all_workers(tmp_path: Path) -> None:
    port = free_port()
    async with serving(tmp_path, settings={"metrics": {"listen": port}}) as (_, clients):
        for name in ("w0", "w1"):
            await (await clients.at(name)).call("up", "echo", {"text": "x"})
        async with asyncio.timeout(BOUND_S), web_client() as web:
            while await _measured(web, port) != {"w0", "w1"}:  # noqa: ASYNC110 - each opens once a client has come
                await asyncio.sleep(0.05)


async def _measured(web: httpx2.AsyncClient, port: int) -> set[str]:
    """Return the workers whose sessions the metrics tell of."""
    try:
        text = (await web.get(f"http://127.0.0.1:{port}/metrics")).text
    except httpx2.ConnectError:  # it is not open yet
        return set()
    sessions = [line for line in text.splitlines() if line.startswith("dynamic_mcp_sessions{")]
    return {re.findall('worker="(.*?)"', line)[0] for line in sessions}


async def _echoes(client: McpClient, group: str, text: str) -> str:
    answer = await client.call(group, "echo", {"text": text})
    return text_of(answer["result"]) if "result" in answer else ""


async def test_limits_count_the_calls_of_all_workers(tmp_path: Path) -> None:
    limited = {"up": {**full(), "limits": [{"rate": "3/d", "burst": 3}]}}
    async with serving(tmp_path, servers=limited) as (_, clients):
        both = [await clients.at("w0"), await clients.at("w1")]
        said = [await each.call("up", "echo", {"text": str(n)}) for n in range(2) for each in both]
        assert [bool(each["result"].get("isError")) for each in said] == [False, False, False, True]
        assert "called too often" in text_of(said[-1]["result"])

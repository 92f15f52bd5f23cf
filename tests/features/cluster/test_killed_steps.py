"""A replica is killed at each step of a protocol, and another one goes on: what was for one use is used once.

A step is a command to the store, before it has run or after. The replica is a process, and is killed by what stands
between it and its store.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Literal

import httpx2
import pytest

from dynamic_mcp.features.approvals.client import ApprovalClient
from dynamic_mcp.features.approvals.store import FOLDER, ApprovalAnswer, ApprovalDecision, QueuedApproval
from dynamic_mcp.oauth.replica_logins import LOGINS, ReplicaLogins, UpstreamLogin
from dynamic_mcp.oauth.store import key
from tests.features.approvals.scene import READ_S, accept
from tests.features.cluster.modern_requests import send
from tests.features.cluster.replicas import KEY, received_by
from tests.features.cluster.store_servers import FaultyProxy, StoreServer, faulty_proxy, open_valkey
from tests.features.cluster.test_shared_login_server import Visitor
from tests.http_client import Disconnected, HttpClient
from tests.http_program import HttpProgram, serving_http
from tests.journeys.remote_server import free_port
from tests.mcp_client import McpClient
from tests.modern_client import retry_of
from tests.oauth.parts import issue_login, remote
from tests.program import Json, full, text_of
from tests.upstreams.auth_server import AuthServer
from tests.web import web_client
from tests.windows import state_dir

pytestmark = [
    pytest.mark.full,
    pytest.mark.alone_only("its clients connect by URL"),
    pytest.mark.skipif(os.name != "posix", reason="there are no signals"),
    pytest.mark.timeout(300),
]
When = Literal["before", "after"]
BOTH: tuple[When, ...] = ("before", "after")
BOUND_S = 60.0
_MOST_STEPS = 20


class Killer:
    """Kills a program at its command with this number, of those that are about a space."""

    def __init__(self, program: HttpProgram, store: FaultyProxy, space: bytes) -> None:
        self.program = program
        self._space = re.compile(rb":[ep]:(?:" + space + rb"):[0-9A-Za-z_-]{22}")
        self._left: int | None = None
        self._when: When = "before"
        self._is_next_answer = False
        store.ask, store.answer = self._ask, self._answer

    def arm(self, number: int, when: When) -> None:
        self._left, self._when = number, when

    def _ask(self, data: bytes) -> bytes:
        if self.program.is_killed:
            return b""
        if self._left is not None and self._space.search(data):
            self._left -= 1
            if self._left == 0:
                self._left = None
                if self._when == "before":
                    self._kill()
                    return b""
                self._is_next_answer = True
        return data

    def _answer(self, data: bytes) -> bytes:
        if self._is_next_answer:
            self._is_next_answer = False
            self._kill()
        return b"" if self.program.is_killed else data

    def _kill(self) -> None:
        self.program.is_ending = self.program.is_killed = True
        os.kill(self.program.process.pid, signal.SIGKILL)


class Service:
    """A replica that lives, and others, one after the other, that are killed."""

    def __init__(
        self, folder: Path, redis: StoreServer, servers: Json, settings: Json, port: int | None = None
    ) -> None:
        self.redis = redis
        self.servers = servers
        self.port = port or free_port()
        self.origin = f"http://127.0.0.1:{self.port}"
        self._folder = folder
        self._settings = settings
        self._folders: dict[HttpProgram, Path] = {}
        self._names = (f"victim-{number}" for number in itertools.count(1))

    @contextlib.asynccontextmanager
    async def survivor(self) -> AsyncIterator[HttpProgram]:
        async with self._serving("survivor", self.port, self.redis.url, self.servers) as program:
            yield program

    @contextlib.asynccontextmanager
    async def victim(self, space: bytes, servers: Json = None) -> AsyncIterator[Killer]:
        async with (
            faulty_proxy(self.redis.port) as store,
            self._serving(
                next(self._names), free_port(), f"valkey://127.0.0.1:{store.port}/0", servers or self.servers
            ) as program,
        ):
            yield Killer(program, store, space)

    @contextlib.asynccontextmanager
    async def _serving(self, name: str, port: int, store: str, servers: Json) -> AsyncIterator[HttpProgram]:
        folder = self._folder / name
        folder.mkdir()
        cluster = {"name": name, "peers": [self.origin], "keys": [KEY], "store": store}
        settings = {**self._settings, "cluster": cluster}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", str(folder / "state"))
            serving = serving_http(folder, servers, port=port, settings=settings)
            program = await serving.__aenter__()
        self._folders[program] = folder
        try:
            yield program
        finally:
            await serving.__aexit__(None, None, None)

    def user_at(self, program: HttpProgram) -> ApprovalClient:
        """Return the user at the machine of a replica, who decides about calls."""
        return ApprovalClient(state_dir(self._folders[program] / "state") / FOLDER)


def steps() -> Iterator[tuple[int, When]]:
    return ((number, when) for number in range(1, _MOST_STEPS) for when in BOTH)


# --- the login server ---------------------------------------------------------------------------------


@pytest.fixture
def login_service(tmp_path: Path, redis: StoreServer) -> Service:
    redis.ask("FLUSHALL")
    port = free_port()
    auth: Json = [{"kind": "login"}, {"kind": "forwarded", "trusted_proxies": ["127.0.0.1"]}]
    http = {"public_url": f"http://127.0.0.1:{port}/mcp", "auth": auth}
    return Service(tmp_path, redis, {"up": {**full(), "home": True}}, {"http": http}, port)


_OF_LOGINS = rb"log[a-z-]*"


async def post(web: httpx2.AsyncClient, program: HttpProgram, path: str, fields: Json) -> httpx2.Response | None:
    """Post a form to a replica; None if that is killed before it answers."""
    try:
        return await web.post(f"{program.own_origin}{path}", data=fields)
    except httpx2.TransportError:
        assert program.is_killed
        return None


async def test_a_code_is_redeemed_once_wherever_a_replica_is_killed(login_service: Service) -> None:
    killed = 0
    async with login_service.survivor() as survivor, web_client() as web:
        visitor = Visitor(survivor, web, login_service.origin)
        for number, when in steps():
            request = await visitor.begin()
            async with login_service.victim(_OF_LOGINS) as victim:
                victim.arm(number, when)
                first = await post(web, victim.program, "/token", request)
            again = await post(web, survivor, "/token", request)
            assert again is not None
            killed += first is None
            if first is None:
                assert again.status_code in (200, 400), again.text
            else:
                assert (first.status_code, again.status_code) == (200, 400)
            if again.status_code == 200:
                assert await visitor.status_at(survivor, again.json()["access_token"]) != 401
                third = await post(web, survivor, "/token", request)
                assert third is not None
                assert third.status_code == 400
                assert await visitor.status_at(survivor, again.json()["access_token"]) == 401, "it was used twice"
            if first is not None and when == "after":
                break
    assert killed >= 6


async def test_a_login_survives_wherever_a_replica_that_renews_it_is_killed(login_service: Service) -> None:
    killed = 0
    async with login_service.survivor() as survivor, web_client() as web:
        visitor = Visitor(survivor, web, login_service.origin)
        tokens = await visitor.log_in()
        for number, when in steps():
            request = {
                "grant_type": "refresh_token",
                "refresh_token": tokens["refresh_token"],
                "client_id": tokens["client_id"],
            }
            async with login_service.victim(_OF_LOGINS) as victim:
                victim.arm(number, when)
                first = await post(web, victim.program, "/token", request)
            again = await post(web, survivor, "/token", request)
            assert again is not None
            assert again.status_code == 200, again.text
            killed += first is None
            if first is not None:
                assert first.content == again.content, "what was answered once is answered again"
            tokens |= again.json()
            assert await visitor.status_at(survivor, tokens["access_token"]) != 401
            if first is not None and when == "after":
                break
    assert killed >= 6


async def test_a_login_that_a_killed_replica_should_end_is_ended_by_another(login_service: Service) -> None:
    killed = 0
    async with login_service.survivor() as survivor, web_client() as web:
        visitor = Visitor(survivor, web, login_service.origin)
        for number, when in steps():
            tokens = await visitor.log_in()
            request = {"token": tokens["refresh_token"], "client_id": tokens["client_id"]}
            async with login_service.victim(_OF_LOGINS) as victim:
                victim.arm(number, when)
                first = await post(web, victim.program, "/revoke", request)
            killed += first is None
            if first is None:
                again = await post(web, survivor, "/revoke", request)
                assert again is not None
                assert again.status_code == 200
            async with asyncio.timeout(BOUND_S):
                while await visitor.status_at(survivor, tokens["access_token"]) != 401:  # noqa: ASYNC110 - elsewhere
                    await asyncio.sleep(0.05)
            renewal = {"grant_type": "refresh_token", **request, "refresh_token": tokens["refresh_token"]}
            refused = await post(web, survivor, "/token", renewal)
            assert refused is not None
            assert refused.status_code == 400
            if first is not None and when == "after":
                break
    assert killed >= 4


# --- approvals ----------------------------------------------------------------------------------------


class ApprovalService(Service):
    """A service that asks about each `echo`, and the server behind it."""

    def __init__(self, folder: Path, redis: StoreServer, server: HttpProgram, **approval: str) -> None:
        asking = {"approval": {"channels": ["queue"], "notify": {"desktop": False}, **approval}}
        super().__init__(folder, redis, {"up": {"url": server.url_of("up"), "approve": ["echo"]}}, asking)
        self._server = server

    async def received(self) -> Counter[str]:
        """Return how often the server has got each text."""
        return await received_by(self._server.origin)


@contextlib.asynccontextmanager
async def approving(tmp_path: Path, redis: StoreServer, **approval: str) -> AsyncIterator[ApprovalService]:
    redis.ask("FLUSHALL")
    folder = tmp_path / "server"
    folder.mkdir()
    async with serving_http(folder, {"up": {**full(), "share": "all"}}) as server:
        yield ApprovalService(tmp_path, redis, server, **approval)


async def call(program: HttpProgram, text: str) -> Json:
    """Return the result of a call at a replica; None if that is killed before it answers."""
    async with HttpClient(program.own_origin) as http:
        client = McpClient(http)
        try:
            await client.initialize()
            return (await client.call("up", "echo", {"text": text}))["result"]
        except (OSError, Disconnected, EOFError):
            assert program.is_killed
            return None


async def sees(user: ApprovalClient, text: str) -> QueuedApproval:
    """Wait until the user sees the call with this text."""
    async with asyncio.timeout(BOUND_S):
        while True:
            for each in await asyncio.to_thread(user.list_pending):
                if json.loads(each.arguments) == {"text": text}:
                    return each
            await asyncio.sleep(0.02)


async def allow(user: ApprovalClient, id: str) -> ApprovalAnswer:
    decision = ApprovalDecision(id=id, verdict="allow", by="eve")
    return await asyncio.to_thread(lambda: user.decide(decision))


async def test_a_call_is_sent_once_at_most_wherever_the_replica_that_asks_is_killed(
    tmp_path: Path, redis: StoreServer
) -> None:
    killed = 0
    async with approving(tmp_path, redis) as service, service.survivor() as survivor:
        user = service.user_at(survivor)
        for number, when in steps():
            text = f"{number} {when}"
            async with service.victim(rb"approvals") as victim:
                calling = asyncio.create_task(call(victim.program, text))
                pending = await sees(user, text)
                victim.arm(number, when)
                answer = await allow(user, pending.id)
                result = await calling
            count = (await service.received())[text]
            assert count <= 1
            killed += result is None
            if result is not None:
                assert (answer.outcome, count, text_of(result)) == ("taken", 1, text)
            if not victim.program.is_killed and when == "after":
                break
    assert killed >= 2


async def test_a_decision_that_waits_for_its_call_is_not_lost_once_it_was_answered(
    tmp_path: Path, redis: StoreServer
) -> None:
    killed = 0
    async with approving(tmp_path, redis, hold="300ms") as service, service.survivor() as survivor:
        for number, when in steps():
            text = f"{number} {when}"
            async with service.victim(rb"approval-grants") as victim:
                user = service.user_at(victim.program)
                assert (await call(victim.program, text))["isError"]
                pending = await sees(user, text)
                victim.arm(number, when)
                answer = await allow(user, pending.id)
            killed += victim.program.is_killed
            results = [await call(survivor, text) for _ in range(2)]
            count = (await service.received())[text]
            assert [not each.get("isError") for each in results] in ([True, False], [False, False])
            assert count == sum(not each.get("isError") for each in results)
            if answer.outcome == "taken":
                assert count == 1
            if not victim.program.is_killed and when == "after":
                break
    assert killed >= 2


async def test_an_approval_is_used_once_at_most_wherever_the_replica_that_uses_it_is_killed(
    tmp_path: Path, redis: StoreServer
) -> None:
    killed = 0
    async with approving(tmp_path, redis, hold="300ms") as service, service.survivor() as survivor:
        user = service.user_at(survivor)
        for number, when in steps():
            text = f"{number} {when}"
            assert (await call(survivor, text))["isError"]
            assert (await allow(user, (await sees(user, text)).id)).outcome == "taken"
            async with service.victim(rb"approval-grants") as victim:
                victim.arm(number, when)
                first = await call(victim.program, text)
            killed += first is None
            again = await call(survivor, text)
            is_sent = [each is not None and not each.get("isError") for each in (first, again)]
            assert (await service.received())[text] == sum(is_sent) <= 1
            assert is_sent == [False, True] or number > 1 or when == "after", "it was not used yet"
            if not victim.program.is_killed and when == "after":
                break
    assert killed >= 2


# --- scripts that wait for their clients --------------------------------------------------------------


class ScriptService(ApprovalService):
    """A service that runs scripts, and asks a client about each `echo` of `up`, but not of `free`."""

    def __init__(self, folder: Path, redis: StoreServer, server: HttpProgram) -> None:
        super().__init__(folder, redis, server)
        self.servers["free"] = {"url": server.url_of("up")}
        self._settings.update(approval={"channels": ["client"]}, scripts=True)

    async def run(self, program: HttpProgram, texts: Sequence[str], asked: Json = None) -> Json:
        """Return the answer to a script that says two texts, or to a retry of it; None if its replica is killed."""
        code = (
            f'await call("free", "echo", {{"text": "{texts[0]}"}})\n'
            f'tool = "echo"\nreturn await call("up", tool, {{"text": "{texts[1]}"}})'
        )
        params = {"name": "run_dynamic_script", "arguments": {"code": code}}
        retry = {} if asked is None else retry_of(asked, accept("once"))
        async with HttpClient(program.own_origin) as http:
            try:
                return await send(http, "tools/call", {**params, **retry})
            except (OSError, Disconnected, EOFError):
                assert program.is_killed
                return None


async def test_no_call_of_a_script_is_sent_twice_wherever_the_replica_that_runs_it_is_killed(
    tmp_path: Path, redis: StoreServer
) -> None:
    """Its client comes back to the replica that has asked, and then, if that was killed, to another one."""
    killed, finished = 0, 0
    redis.ask("FLUSHALL")
    folder = tmp_path / "server"
    folder.mkdir()
    async with serving_http(folder, {"up": {**full(), "share": "all"}}) as server:
        service = ScriptService(tmp_path, redis, server)
        async with service.survivor() as survivor:
            for number, when in steps():
                texts = f"{number} {when} 1", f"{number} {when} 2"
                async with service.victim(rb"scripts") as victim:
                    victim.arm(number, when)
                    asked = await service.run(victim.program, texts)
                    done = None if asked is None else await service.run(victim.program, texts, await read(asked))
                if done is None and asked is not None:
                    done = await service.run(survivor, texts, asked)
                    if "requestState" in done.get("result", {}):  # it asks again
                        done = await service.run(survivor, texts, await read(done))
                counts = [(await service.received())[text] for text in texts]
                assert max(counts) <= 1
                if done is not None and "result" in done:
                    assert (json.loads(text_of(done["result"])), counts) == (texts[1], [1, 1])
                    finished += victim.program.is_killed
                killed += victim.program.is_killed
                if not victim.program.is_killed and when == "after":
                    break
    assert killed >= 4
    assert finished >= 2


async def read(asked: Json) -> Json:
    """Read what is asked, for as long as the answer of a person takes."""
    await asyncio.sleep(READ_S)
    return asked


# --- logins at servers --------------------------------------------------------------------------------

AGED = 4000.0  # a token that was issued so long ago has expired
_STEPS_OF_A_RENEWAL = 7


async def test_no_refresh_token_is_sent_twice_wherever_the_replica_that_renews_is_killed(
    tmp_path: Path, redis: StoreServer
) -> None:
    redis.ask("FLUSHALL")
    points = [(number, when) for number in range(1, _STEPS_OF_A_RENEWAL) for when in BOTH]
    killed = 0
    async with contextlib.AsyncExitStack() as stack:
        guarded = [await stack.enter_async_context(AuthServer()) for _ in points]
        store = await stack.enter_async_context(open_valkey(redis.address))
        servers = {f"up{index}": {"url": server.mcp_url} for index, server in enumerate(guarded)}
        service = Service(tmp_path, redis, servers, {})
        survivor = await stack.enter_async_context(service.survivor())
        before: list[tuple[bool, int, UpstreamLogin]] = []
        for index, (number, when) in enumerate(points):
            server = guarded[index]
            logins = ReplicaLogins(store)
            await logins.open(remote(server.mcp_url)).write(issue_login(server, age_s=AGED), is_new=True)
            await logins.close()
            server.expire()
            own = {f"up{index}": servers[f"up{index}"]}
            async with service.victim(rb"upstream-(?:renewals|logins)", own) as victim:
                victim.arm(number, when)
                await call_tool(victim.program, f"up{index}")
            entry = await store.get(LOGINS, key(remote(server.mcp_url)))
            known = None if entry is None else entry.read(UpstreamLogin)
            assert known is not None
            before.append((victim.program.is_killed, server.count_refreshes(), known))
            killed += victim.program.is_killed
        # one that was killed while it renewed a login keeps the others waiting for 15 s, all at once here
        results = await asyncio.gather(*(call_tool(survivor, name) for name in servers))
    for point, server, (is_killed, sent, known), result in zip(points, guarded, before, results, strict=True):
        tokens = [each.form["refresh_token"] for each in server.requests_to("/token") if "refresh_token" in each.form]
        assert len({*tokens}) == len(tokens), point
        works = result is not None and "error" not in result and not result["result"].get("isError")
        if not is_killed or not known.spent:
            assert works, (point, result)
        else:  # what a killed replica may have sent is not sent again, and the user logs in again
            assert not works, (point, result)
            assert "auth login" in json.dumps(result), (point, result)
        assert len(tokens) <= 1, (point, sent)
    assert killed >= 8


async def call_tool(program: HttpProgram, group: str) -> Json:
    """Return the answer to a call at a replica; None if that is killed before it answers."""
    async with HttpClient(program.own_origin) as http:
        client = McpClient(http)
        try:
            await client.initialize()
            return await client.call(group, "echo", {})
        except (OSError, Disconnected, EOFError):
            assert program.is_killed
            return None

"""What a replica has found out about a person counts at the replica of the person's session."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.features.approvals.test_programs import READ_S
from tests.http_client import HttpClient
from tests.http_program import HttpProgram, serving_http
from tests.mcp_client import McpClient
from tests.modern_client import call_of, retry_of
from tests.process.test_modern_states import Client as ModernClient
from tests.program import BOUND_S, Json, full, odd, text_of

pytestmark = [
    pytest.mark.full,
    pytest.mark.alone_only("it is a program that serves over HTTP, and nobody's window"),
    pytest.mark.usefixtures("two_replicas"),
]
TOKENS = {name: f"front-token-of-{name}-0123456789" for name in ("ann", "bob")}
BEARER: Json = {"kind": "bearer", "tokens": [{"token": f"${{{name.upper()}}}", "subject": name} for name in TOKENS]}
# More than one replica answers of so many requests that go to the next one each.
_SEVERAL = 5
_ONCE: Json = {"action": "accept", "content": {"decision": "once"}}


@pytest.fixture(autouse=True)
def _tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, token in TOKENS.items():
        monkeypatch.setenv(name.upper(), token)


@contextlib.asynccontextmanager
async def serving(folder: Path, servers: Json, *, http: Json = None, **settings: Json) -> AsyncIterator[HttpProgram]:
    """Run replicas whose clients show tokens."""
    settings["http"] = {"auth": [BEARER], **(http or {})}
    async with asyncio.timeout(BOUND_S), serving_http(folder, servers, settings=settings) as program:
        yield program
        for each in (program, *program.others):
            assert "Traceback" not in each.log()


@contextlib.asynccontextmanager
async def session(
    program: HttpProgram, person: str, capabilities: Json = None, **headers: str
) -> AsyncIterator[McpClient]:
    """Begin a session of a person."""
    fields = {"Authorization": f"Bearer {TOKENS.get(person, person)}", **headers}
    async with HttpClient(program.origin) as http:
        client = McpClient(http, headers=fields)
        await client.initialize(capabilities)
        yield client


async def say(client: McpClient, text: str) -> str:
    answer = await client.call("up", "echo", {"text": text})
    return text_of(answer["result"])


async def test_access_rules_are_about_the_person_at_each_replica(tmp_path: Path) -> None:
    rules = {"roles": {"dev": [{"servers": ["up"], "tools": ["echo"]}]}, "people": {"ann": ["dev"]}}
    async with (
        serving(tmp_path, {"up": full()}, access=rules) as program,
        session(program, "ann") as ann,
        session(program, "bob") as bob,
    ):
        for n in range(_SEVERAL):
            assert await say(ann, str(n)) == str(n)
            assert (await ann.call("up", "plain"))["result"]["isError"] is True
            assert (await bob.call("up", "echo", {"text": "x"}))["result"]["isError"] is True


async def test_each_call_has_one_line_with_its_person_and_address(tmp_path: Path) -> None:
    http = {"trusted_proxies": ["127.0.0.1"]}
    audit = {"path": "audit", "arguments": "full"}
    async with serving(tmp_path, {"up": full()}, http=http, audit=audit) as program:
        for person, address in (("ann", "203.0.113.7"), ("bob", "2001:db8::9")):
            async with session(program, person, **{"X-Forwarded-For": address}) as client:
                for n in range(_SEVERAL):
                    await say(client, f"{person}-{n}")
    lines = _audited(tmp_path)
    calls = [(each["arguments"]["text"], each["subject"], each["address"]) for each in lines if _is_call(each)]
    assert sorted(calls) == [
        (f"{person}-{n}", person, address)
        for person, address in (("ann", "203.0.113.7"), ("bob", "2001:db8::9"))
        for n in range(_SEVERAL)
    ]


async def test_a_person_approves_at_another_replica_than_that_which_asks(tmp_path: Path) -> None:
    approve = {"approve": ["echo"]}
    async with (
        serving(tmp_path, {"up": full()}, defaults=approve) as program,
        session(program, "ann", {"elicitation": {}}) as ann,
    ):
        for n in range(3):
            params = call_of("up", "echo", {"text": str(n)})
            id, stream = await ann.begin("tools/call", params)
            question = await stream.hear("elicitation/create")
            assert (await ann.call("up", "plain"))["result"]  # the next request goes elsewhere
            await asyncio.sleep(READ_S)
            await ann.reply(question, _ONCE)
            assert text_of((await stream.until(id))["result"]) == str(n)


async def test_a_person_of_the_modern_era_approves_at_any_replica(tmp_path: Path) -> None:
    async with serving_http(tmp_path, {"a": full()}, settings={"defaults": {"approve": ["echo"]}}) as program:
        client = ModernClient(program)
        try:
            for n in range(3):
                asked = await client.call("echo", {"text": str(n)})
                await asyncio.sleep(READ_S)
                answer = await client.call("echo", {"text": str(n)}, **retry_of(asked, _ONCE))
                assert text_of(answer["result"]) == str(n)
        finally:
            await client.close()


async def test_the_calls_of_a_session_count_for_its_person_at_every_replica(tmp_path: Path) -> None:
    limits = {"limits": [{"rate": "3/h", "burst": 3, "per": ["person"], "tools": ["echo"]}]}
    async with (
        serving(tmp_path, {"up": full()}, defaults=limits) as program,
        session(program, "ann") as ann,
        session(program, "bob") as bob,
    ):
        said = [await ann.call("up", "echo", {"text": "x"}) for _ in range(_SEVERAL)]
        assert [each["result"].get("isError", False) for each in said] == [False] * 3 + [True] * 2
        assert await say(bob, "y") == "y"


async def test_a_server_of_one_user_is_that_users_in_each_session(tmp_path: Path) -> None:
    async with serving(tmp_path, {"odd": odd(share="user", home=True)}) as program:
        pids: dict[str, set[str]] = {}
        for person in ("ann", "bob", "ann", "bob"):
            async with session(program, person) as client:
                found = {text_of((await client.call("odd", "pid"))["result"]) for _ in range(_SEVERAL)}
                assert len(found) == 1, "a session has one copy, whichever replica gets its requests"
                pids.setdefault(person, set()).update(found)
        assert not pids["ann"] & pids["bob"]


def _is_call(line: Json) -> bool:
    return bool(line["event"] == "call" and line["name"] == "echo")


def _audited(folder: Path) -> list[Json]:
    files = [file for n in (0, 1) for file in sorted((folder / f"replica{n}" / "audit").glob("????-??-??.jsonl"))]
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]

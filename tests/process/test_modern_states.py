"""`requestState` in hostile hands, over HTTP: whatever is presented, nothing runs but what was asked for."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.face.http.modern_parties import headers_for
from tests.http_client import HttpClient
from tests.http_program import HttpProgram, serving_http
from tests.mcp_client import BOTH
from tests.modern_client import CAN_ALL, PREFIX, call_of, retry_of
from tests.program import Json, text_of
from tests.upstreams.conformance_modern import ModernHttp
from tests.upstreams.full import Options
from tests.upstreams.full_http import FullHttp

pytestmark = pytest.mark.alone_only("it is a program that serves over HTTP, and nobody's window")

FORM = {"action": "accept", "content": {"answer": "forged"}}
INVALID = {"reason": "invalid"}


class Client:
    """A modern client over HTTP."""

    def __init__(self, program: HttpProgram, name: str = "t") -> None:
        self._http = HttpClient(program.origin)
        self._name = name
        self._ids = itertools.count(1)

    async def request(self, method: str, params: Json) -> dict[str, Json]:
        """Send a request and return its answer."""
        meta = {
            f"{PREFIX}protocolVersion": "2026-07-28",
            f"{PREFIX}clientInfo": {"name": self._name, "version": "1"},
            f"{PREFIX}clientCapabilities": CAN_ALL,
        }
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": {**params, "_meta": meta}}
        headers = {"accept": BOTH, "content-type": "application/json", **headers_for(message)}
        response = await self._http.request("POST", "/mcp", headers, json.dumps(message).encode())
        body = await response.read()
        events = [line.removeprefix(b"data:") for line in body.splitlines() if line.startswith(b"data:")]
        return json.loads(events[-1] if events else body)  # type: ignore[no-any-return]  # a slow answer is a stream

    async def call(self, tool: str, args: Json = None, **params: Json) -> dict[str, Json]:
        """Call a tool of the group `a`."""
        return await self.request("tools/call", call_of("a", tool, args, **params))

    async def calls_that_ran(self) -> list[Json]:
        """Return the arguments of the calls of `elicit` that the server has got, and what it was answered."""
        lines = [json.loads(line) for line in json.loads(text_of((await self.call("record"))["result"]))]
        calls = [line["params"]["arguments"] for line in lines if line.get("params", {}).get("name") == "elicit"]
        return calls + [line["result"] for line in lines if "method" not in line]

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()


@contextlib.asynccontextmanager
async def client_of(program: HttpProgram, name: str = "t") -> AsyncIterator[Client]:
    client = Client(program, name)
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """The URL of a legacy server that asks."""
    async with FullHttp(Options(), older=False).listening() as url:
        yield url


def _servers(url: str) -> Json:
    return {"a": {"type": "http", "url": url}}


def _changed(state: str, at: int) -> str:
    at %= len(state)
    return state[:at] + ("A" if state[at] != "A" else "B") + state[at + 1 :]


async def test_a_state_that_was_changed_cut_short_or_made_longer_is_refused(tmp_path: Path, url: str) -> None:
    async with serving_http(tmp_path, _servers(url)) as program, client_of(program) as client:
        asked = await client.call("elicit", {"key": "k"})
        good = asked["result"]["requestState"]
        prefix, process, sealed = good.split(".")
        changed = [_changed(good, len(good) - back) for back in (5, len(sealed) // 2, len(sealed) - 1)]
        forged = [f"{prefix}.{process}.", f"{prefix}..{sealed}", good[:-4], good + "AAAA", good + "A" * 5000]
        for state in (*changed, *forged, f"{prefix}.{process}.\u00e4", f"{prefix}."):
            refused = await client.call("elicit", {"key": "k"}, **{**retry_of(asked, FORM), "requestState": state})
            assert (refused["error"]["code"], refused["error"]["data"]) == (-32602, INVALID), state
        assert await client.calls_that_ran() == [{"key": "k"}]
        answered = await client.call("elicit", {"key": "k"}, **retry_of(asked, FORM))
        assert json.loads(text_of(answered["result"]))["result"] == FORM


async def test_the_states_of_two_calls_cannot_be_swapped_and_fit_no_other_method(tmp_path: Path, url: str) -> None:
    async with serving_http(tmp_path, _servers(url)) as program, client_of(program) as client:
        one, two = [await client.call("elicit", {"key": key}) for key in ("one", "two")]
        tries = [
            await client.call("elicit", {"key": "one"}, **retry_of(two, FORM)),
            await client.call("elicit", {"key": "two"}, **retry_of(one, FORM)),
            await client.call("sample", {"key": "one"}, **retry_of(one, FORM)),
            await client.request("prompts/get", {"name": "a__greet", "arguments": {}, **retry_of(one, FORM)}),
            await client.request("resources/read", {"uri": "full://text", **retry_of(one, FORM)}),
        ]
        assert [(each["error"]["code"], each["error"]["data"]) for each in tries] == [(-32602, INVALID)] * 5
        assert await client.calls_that_ran() == [{"key": "one"}, {"key": "two"}]


async def test_a_state_is_good_once_also_for_two_who_come_at_once(tmp_path: Path, url: str) -> None:
    async with serving_http(tmp_path, _servers(url)) as program, client_of(program) as client:
        asked = await client.call("elicit", {"key": "k"})
        answered = await client.call("elicit", {"key": "k"}, **retry_of(asked, FORM))
        again = await client.call("elicit", {"key": "k"}, **retry_of(asked, FORM))
        assert json.loads(text_of(answered["result"]))["result"] == FORM
        assert again["error"]["data"] == {"reason": "used"}
        assert await client.calls_that_ran() == [{"key": "k"}, FORM]


async def test_a_state_from_before_a_restart_is_refused_and_the_call_is_not_made_again(
    tmp_path: Path, url: str
) -> None:
    async with serving_http(tmp_path, _servers(url)) as program, client_of(program) as client:
        asked = await client.call("elicit", {"key": "k"})
    async with serving_http(tmp_path, _servers(url)) as program, client_of(program) as client:
        refused = await client.call("elicit", {"key": "k"}, **retry_of(asked, FORM))
        assert refused["error"]["data"] == {"reason": "restarted"}
        assert await client.calls_that_ran() == []


@pytest.mark.parametrize("name", ["t", "somebody else"])
async def test_a_state_of_a_modern_server_is_that_servers_to_judge(tmp_path: Path, name: str) -> None:
    tool = "test_input_required_result_tampered_state"
    async with (
        ModernHttp() as server,
        serving_http(tmp_path, _servers(server.url)) as program,
        client_of(program) as client,
        client_of(program, name) as other,
    ):
        asked = await client.call(tool)
        form = {"action": "accept", "content": {"ok": True}}
        retry = retry_of(asked, form)
        refused = await other.call(tool, **{**retry, "requestState": _changed(retry["requestState"], 3)})
        elsewhere = await other.call(tool, {"x": 1}, **retry)
        answered = await client.call(tool, **retry)
    for each, why in ((refused, "requestState was changed"), (elsewhere, "requestState is of another request")):
        assert (each["error"]["code"], each["error"]["message"]) == (-32602, why)
    assert text_of(answered["result"]).startswith("state-ok")

"""Requests of clients of 2026-07-28 that come to any replica: about tasks, retries, and streams of notifications."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from dynamic_mcp.config.access import Access, AccessRule, Effect
from tests.face.http.modern_parties import LISTEN, headers_for
from tests.fakes import Json, text_of
from tests.features.cluster.modern_requests import begin, meta_of, send
from tests.features.cluster.replicas import BEARER, KEY, Replica, as_user, replicas
from tests.http_client import HttpClient
from tests.mcp_client import BOTH, McpStream
from tests.modern_client import call_of, retry_of
from tests.upstreams.modern_http import ModernHttp

_META = meta_of()
_YES: Json = {"action": "accept", "content": {"confirm": True}}


class Service(NamedTuple):
    """Two replicas in front of one server of 2026-07-28, and what sends requests to each."""

    server: ModernHttp
    replicas: list[Replica]
    at: list[HttpClient]

    async def send(
        self, number: int, method: str, params: Json, *, user: str = "ann", path: str = "/mcp"
    ) -> dict[str, Json]:
        """Send a request of a user to one of the replicas; return its answer."""
        return await send(self.at[number], method, params, user=user, path=path)

    async def begin(
        self, number: int, method: str, params: Json, *, user: str = "ann", path: str = "/mcp"
    ) -> McpStream:
        return await begin(self.at[number], method, params, user=user, path=path)

    async def call(self, number: int, tool: str, args: Json = None, **params: Json) -> dict[str, Json]:
        """Call a tool at one of the replicas; return the result."""
        answer = await self.send(number, "tools/call", call_of("up", tool, args, **params))
        assert "result" in answer, answer
        result: dict[str, Json] = answer["result"]
        return result

    async def task(self, number: int, method: str, id: str, **params: Json) -> dict[str, Json]:
        """Ask one of the replicas about a task."""
        return await self.send(number, method, {"taskId": id, **params})

    async def end_of(self, number: int, id: str) -> dict[str, Json]:
        """Return a task once it has ended."""
        while True:
            task: dict[str, Json] = (await self.task(number, "tasks/get", id))["result"]
            if task["status"] not in ("working", "input_required"):
                return task


@pytest.fixture
def config() -> Json:
    """Members of the replicas' config."""
    return {}


@pytest.fixture
async def service(config: Json) -> AsyncIterator[Service]:
    async with (
        ModernHttp() as server,
        replicas(auth=(BEARER,), upstream=server.url, config=config) as pair,
        HttpClient(pair[0].url) as first,
        HttpClient(pair[1].url) as second,
    ):
        yield Service(server, pair, [first, second])


async def test_the_id_of_a_task_names_the_replica_that_began_it(service: Service) -> None:
    ids = [(await service.call(number, "slow_compute"))["taskId"] for number in (0, 1)]
    assert [id.split(".")[:2] for id in ids] == [["d1", "a"], ["d1", "b"]]
    assert [id.split(".", 3)[3] for id in ids] == ["up__task-1", "up__task-2"]


async def test_a_task_is_asked_about_at_any_replica(service: Service) -> None:
    id = (await service.call(0, "slow_compute", {"label": "x"}))["taskId"]
    task = await service.end_of(1, id)
    assert task["taskId"] == id
    assert text_of(task["result"]) == "computed x"


async def test_a_task_that_asks_is_answered_at_another_replica(service: Service) -> None:
    id = (await service.call(0, "confirm_delete"))["taskId"]
    task = (await service.task(1, "tasks/get", id))["result"]
    assert [*task["inputRequests"]] == ["confirm"]
    updated = await service.task(1, "tasks/update", id, inputResponses={"confirm": _YES})
    assert "error" not in updated
    assert "True" in text_of((await service.end_of(0, id))["result"])


async def test_a_task_that_begins_with_a_question_keeps_its_state_over_replicas(service: Service) -> None:
    asked = {"result": await service.call(0, "test_tool_with_task")}
    retry = retry_of(asked, {"action": "accept", "content": {"name": "n"}})
    id = (await service.call(1, "test_tool_with_task", **retry))["taskId"]
    assert id.startswith("d1.b.")
    assert (await service.end_of(0, id))["status"] == "completed"


async def test_a_task_is_cancelled_at_another_replica(service: Service) -> None:
    id = (await service.call(0, "confirm_delete"))["taskId"]
    assert "error" not in await service.task(1, "tasks/cancel", id)
    assert (await service.end_of(1, id))["status"] == "cancelled"


async def test_a_task_of_one_server_alone_is_asked_about_at_any_replica(service: Service) -> None:
    params = {"name": "slow_compute", "arguments": {}}
    answer = await service.send(0, "tools/call", params, path="/mcp/up")
    id = answer["result"]["taskId"]
    assert id.split(".", 3)[3] == "task-1"
    assert "result" in await service.send(1, "tasks/get", {"taskId": id}, path="/mcp/up")
    assert "error" in await service.send(1, "tasks/get", {"taskId": id})


@pytest.mark.parametrize("number", [0, 1])
async def test_a_task_of_another_user_does_not_exist_at_any_replica(service: Service, number: int) -> None:
    id = (await service.call(0, "confirm_delete"))["taskId"]
    for presented in (id, id.split(".", 3)[3], id.replace("d1.a.", "d1.b.")):
        answer = await service.send(number, "tasks/get", {"taskId": presented}, user="bob")
        assert "task" in answer["error"]["message"]
    assert [each.message["method"] for each in service.server.requests].count("tasks/get") == 0


@pytest.mark.parametrize("part", [0, 1, 2, 3])
async def test_an_id_that_was_changed_names_no_task(service: Service, part: int) -> None:
    parts = (await service.call(0, "confirm_delete"))["taskId"].split(".", 3)
    parts[part] = parts[part][:-1] + ("2" if parts[part][-1] != "2" else "3")
    assert "error" in await service.task(0, "tasks/get", ".".join(parts))
    assert "error" in await service.task(1, "tasks/get", ".".join(parts))


async def test_a_header_that_names_another_task_is_refused(service: Service) -> None:
    ids = [(await service.call(0, "confirm_delete"))["taskId"] for _ in range(2)]
    message = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"taskId": ids[0], "_meta": _META}}
    headers = {"Accept": BOTH, "Content-Type": "application/json", **headers_for(message), **as_user("ann")}
    headers["mcp-name"] = ids[1]
    response = await service.at[1].request("POST", "/mcp", headers, json.dumps(message).encode())
    assert "Mcp-Name" in json.loads(await response.read())["error"]["message"]
    assert response.status == 400


async def test_a_task_outlives_the_replica_that_began_it(service: Service) -> None:
    id = (await service.call(0, "confirm_delete"))["taskId"]
    await service.replicas[0].service.finish(0)
    assert (await service.task(1, "tasks/get", id))["result"]["status"] == "input_required"
    answer = await service.send(1, "tasks/get", {"taskId": id}, user="bob")
    assert "error" in answer, "it is still of its user alone"


async def test_a_task_is_found_after_its_key_was_replaced(service: Service) -> None:
    id = (await service.call(0, "confirm_delete"))["taskId"]
    for each in service.replicas:
        await each.apply(keys=(KEY[::-1], KEY))
    assert "result" in await service.task(1, "tasks/get", id)


class TestWithAccessRules:
    @pytest.fixture
    def config(self) -> Json:
        rule = AccessRule(effect=Effect.ALLOW, servers=("up",), tools=("slow_compute",))
        return {"access": Access(roles={"dev": (rule,)}, people={"ann": ("dev",)})}

    async def test_the_replica_that_knows_the_tool_of_a_task_decides(self, service: Service) -> None:
        id = (await service.call(0, "slow_compute", {"label": "x"}))["taskId"]
        assert text_of((await service.end_of(1, id))["result"]) == "computed x"


async def test_what_a_call_at_one_replica_changes_is_heard_at_the_other(service: Service) -> None:
    await service.call(0, "slow_compute")
    await service.call(1, "slow_compute")
    stream = await service.begin(1, LISTEN, {"notifications": {"toolsListChanged": True}}, path="/mcp/up")
    await stream.hear("notifications/subscriptions/acknowledged")
    await service.call(0, "test_trigger_tool_change")
    await stream.hear("notifications/tools/list_changed")

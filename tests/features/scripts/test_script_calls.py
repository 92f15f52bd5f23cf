"""The calls of a script are calls of its client: the same rules hold, and they are recorded like any other."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Literal

import pytest
from msgspec.structs import replace

from dynamic_mcp.config.access import LOCAL_NAME, Access, Profile, ProfileTools
from dynamic_mcp.config.resolved import Share
from dynamic_mcp.errors import UpstreamError
from dynamic_mcp.features.audit.observer import AuditObserver
from dynamic_mcp.features.audit.recorder import Trail
from dynamic_mcp.features.cache.config import Cache
from dynamic_mcp.features.limits.config import Limit
from dynamic_mcp.features.redaction.config import Redact
from dynamic_mcp.features.result_texts.config import ResultTexts
from dynamic_mcp.features.scripts.config import Scripts
from dynamic_mcp.features.telemetry.tracing import Tracing
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.proxy.request import Observers
from tests.fakes import PRESENTATION, FakeClock, FakeUpstream, Json, Opener, config_of, group_config, text_of
from tests.features.approvals.scene import READ_S, accept, asking_with
from tests.features.audit.audited import KEEPING, uses_in
from tests.features.scripts.scene import SLOW_S, Scene, ScriptClient, echo, patiently, scripting, text
from tests.features.telemetry.parties import FakeExporter, record_to, recorded
from tests.modern_client import ModernClient, retry_of
from tests.policy.rules import access_of, person

ECHO = 'return await call("up", "echo", {"n": 1})'
CAUGHT = 'try:\n    await call("up", "%s", {})\nexcept ToolError as error:\n    return str(error)'


async def test_the_tool_is_listed_beside_the_others_only_where_it_is_on() -> None:
    async with scripting() as (scene, client):
        tools = (await client.request("tools/list"))["result"]["tools"]
        assert [tool["name"] for tool in tools] == ["get_dynamic_tools", "call_dynamic_tool", "run_dynamic_script"]
        assert len(tools[-1]["description"].split()) < 160

        scene.proxy.apply(config_of(*scene.groups))
        tools = (await client.request("tools/list"))["result"]["tools"]
        assert [tool["name"] for tool in tools] == ["get_dynamic_tools", "call_dynamic_tool"]
        refused = await client.request(
            "tools/call", {"name": "run_dynamic_script", "arguments": {"code": "return 1"}}
        )
        assert "no tool is named `run_dynamic_script`" in json.dumps(refused)


@pytest.mark.parametrize(("clients", "scope"), [("auto", "private"), ("all", "public")])
async def test_a_list_with_scripts_is_shared_only_where_every_client_is_offered_them(
    clients: Literal["auto", "all"], scope: str
) -> None:
    async with scripting(scripts=Scripts(clients=clients)) as (scene, _):
        client = ModernClient(scene.proxy)

        assert (await client.request("tools/list"))["result"]["cacheScope"] == scope
        assert (await client.request("resources/list"))["result"]["cacheScope"] == "public"


async def test_a_client_that_runs_scripts_of_its_own_is_offered_none_unless_the_config_says_so() -> None:
    async def names(client: ScriptClient) -> list[str]:
        return [tool["name"] for tool in (await client.request("tools/list"))["result"]["tools"]]

    for clients, offered in ((Scripts(), False), (Scripts(clients="all"), True)):
        async with scripting(scripts=clients) as (scene, _):
            client = ScriptClient(scene.proxy)
            info = {"name": "codex-mcp-client", "version": "0.169.0"}
            hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
            await client.request("initialize", hello)
            client.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
            assert ("run_dynamic_script" in await names(client)) is offered


async def test_a_profile_switches_scripts() -> None:
    async def names(client: ScriptClient) -> list[str]:
        return [tool["name"] for tool in (await client.request("tools/list"))["result"]["tools"]]

    profiles = {"off": Profile("off", scripts=False), "on": Profile("on", scripts=True), "same": Profile("same")}
    async with scripting(profiles=profiles) as (scene, _):
        assert "run_dynamic_script" not in await names(await scene.client(profile="off"))
        assert "run_dynamic_script" in await names(await scene.client(profile="same"))
    async with scripting(profiles=profiles) as (scene, _):
        scene.proxy.apply(config_of(*scene.groups, profiles=profiles))
        assert "run_dynamic_script" not in await names(await scene.client(profile="same"))
        client = await scene.client(profile="on")
        assert "run_dynamic_script" in await names(client)
        assert await client.value("return 1") == 1


async def test_what_is_hidden_from_a_client_does_not_exist_in_its_scripts() -> None:
    profiles = {"narrow": Profile("narrow", servers=("up",), tools=ProfileTools(exclude=("hidden",)))}
    async with scripting(echo, profiles=profiles) as (scene, _):
        client = await scene.client(profile="narrow")
        plain = await client.call("up", "hidden", {})
        assert await client.value(CAUGHT % "hidden") == text_of(plain)
        assert "no group is named `other`" in await client.failure('await call("other", "echo")')
        found = await client.value("return [[each['group'], each['name']] for each in await tools()]")
        assert found == [["up", "echo"]]
        assert scene.upstream.heard("tools/call") == []


async def test_access_rules_decide_about_each_call() -> None:
    access = access_of(
        roles={"dev": [{}, {"tools": ["hidden"], "effect": "deny"}]},
        people={LOCAL_NAME: ["dev"]},
    )
    async with scripting(echo, access=access) as (scene, client):
        plain = await client.call("up", "hidden", {})
        assert await client.value(CAUGHT % "hidden") == text_of(plain)
        assert await client.value(ECHO) == {"n": 1}
        assert len(scene.upstream.heard("tools/call")) == 1


async def test_a_rule_that_comes_while_a_script_runs_holds_for_its_next_call() -> None:
    async with scripting() as (scene, client):
        code = 'await call("up", "echo")\n' + CAUGHT % "hidden"
        running = asyncio.create_task(client.value(code))
        question = await patiently(scene.upstream.hears, "tools/call")
        profile = access_of(
            roles={"dev": [{}, {"tools": ["hidden"], "effect": "deny"}]}, people={LOCAL_NAME: ["dev"]}
        )
        scene.proxy.apply(config_of(*scene.groups, scripts=Scripts(), access=profile))
        scene.upstream.say({"jsonrpc": "2.0", "id": question["id"], "result": text("1")})
        assert "no tool of group `up` is named `hidden`" in str(await running)
        assert len(scene.upstream.heard("tools/call")) == 1


async def ruled(**rules: Json) -> tuple[Proxy, FakeUpstream, ScriptClient]:
    upstream = FakeUpstream({"tools/call": echo}, tools=("echo", "get_x"))
    config = config_of(group_config("up", share=Share.ALL, rules=rules), scripts=Scripts())
    proxy = Proxy(config, opener=Opener(up=[upstream]))
    client = ScriptClient(proxy, bound_s=30)
    await client.initialize()
    return proxy, upstream, client


async def test_limits_count_the_calls_of_scripts() -> None:
    proxy, upstream, client = await ruled(limits=(Limit("limits[0]", rate=0.01, burst=2),))
    try:
        said = await client.failure('for n in range(3):\n    await call("up", "echo", {"n": n})')
        assert "`echo` was called too often" in said
        assert len(upstream.heard("tools/call")) == 2
    finally:
        await proxy.close()


async def test_a_cached_result_answers_a_script_and_secrets_are_redacted() -> None:
    proxy, upstream, client = await ruled(
        cache=(Cache("cache[0]", tools=("*",), ttl_s=60),),
        redact=(Redact("redact[0]", pattern="s3cret"),),
    )
    try:
        code = 'return [await call("up", "get_x", {"n": input}) for _ in range(2)]'
        answers = await client.value(code, "s3cret")
        assert len(upstream.heard("tools/call")) == 1
        assert "s3cret" not in json.dumps(answers)
    finally:
        await proxy.close()


async def test_texts_of_an_untrusted_server_are_marked_in_the_result_of_a_script_and_not_in_it() -> None:
    upstream = FakeUpstream({"tools/call": echo})
    shown = PRESENTATION.answers
    group = group_config(
        share=Share.ALL, rules={"results": ResultTexts(mark=True)}, answers=replace(shown, marks=True)
    )
    proxy = Proxy(config_of(group, scripts=Scripts()), opener=Opener(up=[upstream]))
    client = ScriptClient(proxy, bound_s=30)
    try:
        await client.initialize()
        plain = text_of(await client.call("up", "echo", {"n": 1}))
        marked = text_of(await client.run(ECHO))
        without_group = [
            text_of(await client.run(f'return await call("", "{name}")')) for name in ("echo", "up__echo")
        ]
        assert await client.value("return 1") == 1
    finally:
        await proxy.close()
    assert [len(each.splitlines()) for each in (plain, marked, *without_group)] == [3] * 4
    assert json.loads(marked.splitlines()[1]) == {"n": 1}


async def test_scripts_call_also_where_reads_and_writes_have_a_tool_each() -> None:
    async with scripting(echo, split_calls=True) as (_, client):
        assert await client.value(ECHO) == {"n": 1}
        answer = await client.request(
            "tools/call", {"name": "call_dynamic_tool", "arguments": {"group": "up", "name": "echo"}}
        )
        assert "is not offered here" in text_of(answer["result"])


async def test_a_script_cannot_run_scripts() -> None:
    async with scripting(echo) as (_, client):
        said = await client.failure('await call("", "run_dynamic_script", {"code": "return 1"})')
        assert "no tool is named `run_dynamic_script`" in said


async def test_a_script_finds_tools() -> None:
    async with scripting() as (_, client):
        code = (
            "def names(found): return sorted(each['group'] + '.' + each['name'] for each in found)\n"
            'return [names(await tools()), names(await tools("up")), names(await tools(query="hidden")),'
            ' (await tools("other"))[0]["inputSchema"]]'
        )
        everything, up, found, schema = await client.value(code)
        assert everything == ["other.echo", "up.echo", "up.hidden"]
        assert up == ["up.echo", "up.hidden"]
        assert found[0] == "up.hidden"
        assert schema == {"type": "object"}
        assert "no group is named `nope`" in await client.failure('await tools("nope")')


async def test_tools_of_servers_that_fail_are_left_out_of_all_tools_and_named() -> None:
    up, down = FakeUpstream({}, tools=("echo",)), UpstreamError("down", "it does not start")
    groups = [group_config(name) for name in ("down", "up")]
    proxy = Proxy(config_of(*groups, scripts=Scripts()), opener=Opener(up=[up], down=[down, down]))
    client = ScriptClient(proxy, bound_s=SLOW_S)
    try:
        await client.initialize()
        found, printed = (await client.run("return [each['name'] for each in await tools()]"))["content"]
        assert json.loads(found["text"]) == ["echo"]
        assert "the tools of `down` are left out" in printed["text"]
        assert "it does not start" in await client.failure('return await tools("down")')
    finally:
        await proxy.close()


async def test_a_kept_result_cannot_be_read_without_the_right_to_each_tool_that_it_is_from() -> None:
    def only(tool: str) -> Access:
        return access_of(roles={"dev": [{"servers": ["up"], "tools": [tool]}]})

    async def read(client: ScriptClient, uri: str) -> Json:
        return await client.request("resources/read", {"uri": f"dynamic-mcp://results/{uri}"})

    async with scripting(text("x" * 150_000), access=only("*")) as (scene, _):
        client = await scene.client(authentication=person("ann", "dev"))
        uris = []
        for names in ('"up", "echo"', '"", "hidden"', '"up", "up__hidden"'):
            result = await client.run(f"return await call({names})")
            uris.append(json.dumps(result).partition("dynamic-mcp://results/")[2][:32])
        assert all(["result" in await read(client, uri) for uri in uris])
        scene.proxy.apply(replace(scene.config, access=only("echo")))
        assert ["result" in await read(client, uri) for uri in uris] == [True, False, False]


# --- what others see of it -----------------------------------------------------------------------------


async def test_progress_of_its_calls_is_progress_of_the_script() -> None:
    async with scripting() as (scene, client):
        code = 'await call("up", "echo", {"n": 1})\nreturn await call("up", "echo", {"n": 2})'
        running = asyncio.create_task(client.run(code, _meta={"progressToken": "mine"}))
        for number in (1, 2):
            question = await patiently(scene.upstream.hears, "tools/call", number)
            token = question["params"]["_meta"]["progressToken"]
            body = {"progressToken": token, "progress": 10, "total": 20, "message": f"half of {number}"}
            scene.upstream.say({"jsonrpc": "2.0", "method": "notifications/progress", "params": body})
            await client.hears("notifications/progress", 2 * number - 1)
            scene.upstream.say({"jsonrpc": "2.0", "id": question["id"], "result": text("1")})
        await running
        told = [each["params"] for each in client.heard("notifications/progress")]
        assert [(each["progressToken"], each["progress"], each["message"]) for each in told] == [
            ("mine", 1, "half of 1"),
            ("mine", 2, "up.echo: done"),
            ("mine", 3, "half of 2"),
            ("mine", 4, "up.echo: done"),
        ]


async def test_the_audit_log_has_the_script_and_its_calls_as_its_own(tmp_path: Path) -> None:
    trail = Trail(tmp_path, KEEPING, stops_writes=False)
    async with scripting(echo) as (scene, client):
        scene.proxy.observers = Observers([AuditObserver(trail)])
        await client.value(ECHO)
        await client.failure('await call("up", "echo")\nawait call("up", "nope")')
        await client.call("up", "echo", {})
    trail.close()
    lines = [line for line in uses_in(tmp_path) if line["event"] == "call"]
    scripts = [line for line in lines if line["name"] == "run_dynamic_script"]
    assert [line.get("outcome", "success") for line in scripts] == ["success", "failure"]
    first, second = (line["id"] for line in scripts)
    assert [(line["name"], line.get("parent")) for line in lines] == [
        ("echo", first),
        ("run_dynamic_script", None),
        ("echo", second),
        ("nope", second),
        ("run_dynamic_script", None),
        ("echo", None),
    ]


async def test_a_call_of_a_script_is_a_child_span_of_it() -> None:
    exporter = FakeExporter()
    recorder = record_to(exporter)
    async with scripting(echo) as (scene, client):
        scene.proxy.observers = Observers([Tracing(recorder)])
        await client.value(ECHO)
    found = recorded(recorder, exporter)
    script = found.span("server", "tools/call run_dynamic_script")
    call = found.span("server", "tools/call echo")
    assert call.trace.id == script.trace.id
    assert call.trace.parent is not None
    assert call.trace.parent.span_id == script.id


# --- persons -------------------------------------------------------------------------------------------


async def test_a_legacy_client_is_asked_in_the_middle_of_a_script() -> None:
    access = access_of(roles={"dev": [{}, {"tools": ["echo"], "effect": "ask"}]}, people={LOCAL_NAME: ["dev"]})
    clock = FakeClock()
    scene = Scene(access=access, steps=asking_with(clock))
    client = ScriptClient(scene.proxy, bound_s=30)
    try:
        await client.initialize(capabilities={"elicitation": {"form": {}}})
        running = asyncio.create_task(client.value('name = "echo"\nreturn await call("up", name, {"n": 1})'))
        question = await client.hears("elicitation/create")
        assert "`echo`" in question["params"]["message"]
        await clock.pass_(READ_S)
        client.reply(question, accept("once"))
        call = await patiently(scene.upstream.hears, "tools/call")
        scene.upstream.say({"jsonrpc": "2.0", "id": call["id"], "result": text("7")})
        assert await running == 7
    finally:
        await scene.proxy.close()


async def test_questions_of_servers_in_a_script_reach_a_modern_client_as_input_required() -> None:
    scene = Scene()
    client = ModernClient(scene.proxy)
    try:
        code = (
            "import asyncio\n"
            'return await asyncio.gather(call("up", "echo", {"n": 1}), call("other", "echo", {"n": 2}))'
        )
        params = {"name": "run_dynamic_script", "arguments": {"code": code}}
        first = client.begin("tools/call", params)
        servers = [asyncio.create_task(ask_and_answer(upstream)) for upstream in (scene.upstream, scene.other)]
        answer = await patiently(client.answer_to, first)
        assert answer["result"]["resultType"] == "input_required"
        while answer["result"]["resultType"] == "input_required":
            again = client.begin("tools/call", {**params, **retry_of(answer)})
            answer = await patiently(client.answer_to, again)
        await asyncio.gather(*servers)
        assert answer["result"]["content"][0]["text"] == "[1, 1]"
    finally:
        await scene.proxy.close()


async def ask_and_answer(upstream: FakeUpstream) -> None:
    """Answer a call once the client has answered a question."""
    call = await patiently(upstream.hears, "tools/call")
    ask = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
    upstream.say({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": ask})
    await patiently(upstream.hears, "an answer")
    upstream.say({"jsonrpc": "2.0", "id": call["id"], "result": text("1")})

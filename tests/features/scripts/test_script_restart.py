"""A script that waits for its modern client goes on after a restart, once, and repeats nothing that was done."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from hashlib import sha256
from pathlib import Path

import pytest

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.config.access import LOCAL_NAME, Profile
from dynamic_mcp.config.resolved import GroupConfig
from dynamic_mcp.features.scripts import run as script_run
from dynamic_mcp.features.scripts import suspended_files
from dynamic_mcp.features.scripts.config import Scripts
from dynamic_mcp.features.scripts.suspended import SuspendedScripts
from dynamic_mcp.features.scripts.suspended_files import SuspendedFiles
from dynamic_mcp.identity import LOCAL
from dynamic_mcp.mcp.envelope import StateRefused
from dynamic_mcp.upstream.any_link import AnyLink
from dynamic_mcp.upstream.handshake import Era, ServerInfo
from dynamic_mcp.upstream.link import LinkOwner
from tests.fakes import FakeClock, Json, tool
from tests.features.approvals.scene import READ_S, accept, asking_with
from tests.features.approvals.test_modern import ModernOpener
from tests.features.scripts.scene import SLOW_S, Scene, patiently, text
from tests.modern_client import ModernClient, retry_of
from tests.policy.rules import access_of, person
from tests.upstream.modern import ModernUpstream, complete
from tests.windows import is_private

ASKS: Json = {"tools": ["echo"], "effect": "ask"}
MIDDLE = """first = await call("up", "hidden", {"n": 1})
print("got", first)
tool = "echo"
try:
    second = await call("other", tool, {"n": 2})
except ToolError as error:
    second = str(error)
return [first, second, await call("up", "hidden", {"n": 3})]"""


def run(code: str, data: Json = None) -> dict[str, Json]:
    """Return the params of a call that runs a script."""
    return {"name": "run_dynamic_script", "arguments": {"code": code, "input": data}}


async def ask(client: ModernClient, params: Json) -> dict[str, Json]:
    """Send a call, and return its answer."""
    return await patiently(client.answer_to, client.begin("tools/call", params))


async def end(scene: Scene, client: ModernClient) -> None:
    """End a program whose client waits."""
    client.session.close()
    async with asyncio.timeout(SLOW_S):
        await scene.proxy.close()


def numbers(scene: Scene) -> list[Json]:
    """Return the arguments of the calls that the first server has got."""
    return [call["params"]["arguments"]["n"] for call in scene.upstream.heard("tools/call")]


def answering(params: Json) -> Json:
    """Answer with the number of a call."""
    return text(params["arguments"]["n"])


def asking_scene(folder: Path | None, clock: FakeClock, **changes: Json) -> Scene:
    """Return a proxy whose `echo` wants a person asked."""
    access = access_of(roles={"dev": [{}, ASKS]}, people={LOCAL_NAME: ["dev"]})
    return Scene(answering, access=access, steps=asking_with(clock), clock=clock, state_folder=folder, **changes)


async def park(folder: Path, code: str = MIDDLE, **changes: Json) -> tuple[Json, dict[str, Json]]:
    """Have a script wait for an approval, and end the program; return the answer, and what it was called with."""
    scene = asking_scene(folder, FakeClock(), **changes)
    client = ModernClient(scene.proxy)
    answer = await ask(client, run(code))
    assert answer["result"]["resultType"] == "input_required", answer
    await end(scene, client)
    return answer, run(code)


def binding_of(params: Json) -> bytes:
    """Return what a script that is called with these params is bound to on disk."""
    arguments = [LOCAL.issuer, LOCAL.subject, None, None, params["arguments"]]
    return sha256(json.dumps(arguments, sort_keys=True).encode()).digest()


def reason(answer: Json) -> str:
    """Return why a state was refused."""
    assert "error" in answer, answer
    found: str = answer["error"]["data"]["reason"]
    return found


async def test_a_call_that_a_person_has_not_allowed_is_sent_after_the_restart_when_it_is_allowed(
    tmp_path: Path,
) -> None:
    parked, params = await park(tmp_path)
    clock = FakeClock()
    scene = asking_scene(tmp_path, clock)
    client = ModernClient(scene.proxy)
    asked = await ask(client, {**params, **retry_of(parked, accept("once"))})
    assert asked["result"]["resultType"] == "input_required"  # an approval allows nothing after a restart
    assert scene.other.heard("tools/call") == []
    await clock.pass_(READ_S)
    done = await ask(client, {**params, **retry_of(asked, accept("once"))})
    assert [block["text"] for block in done["result"]["content"]] == ["[1, 2, 3]", "printed:\ngot 1\n"]
    assert numbers(scene) == [3]  # the first was done before
    assert len(scene.other.heard("tools/call")) == 1
    await end(scene, client)


async def test_a_call_in_flight_at_a_server_whose_connection_is_gone_may_have_run(tmp_path: Path) -> None:
    scene = Scene(answering, state_folder=tmp_path)
    scene.other.answers.pop("tools/call", None)
    client = ModernClient(scene.proxy)
    id = client.begin("tools/call", run(MIDDLE))
    await patiently(scene.other.hears, "tools/call")
    form = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
    scene.other.say({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": form})
    parked = await patiently(client.answer_to, id)
    await end(scene, client)

    scene = Scene(answering, state_folder=tmp_path)
    client = ModernClient(scene.proxy)
    done = await ask(client, {**run(MIDDLE), **retry_of(parked)})
    first, second, third = json.loads(done["result"]["content"][0]["text"])
    assert (first, third) == (1, 3)
    assert "restarted before this call was answered; it may have run" in second
    assert scene.other.heard("tools/call") == []
    await end(scene, client)


def input_wanting() -> ModernUpstream:
    """Return a server whose tool needs an answer of the client."""

    def answer(params: Json) -> Json:
        if "requestState" in params:
            said = params["inputResponses"]["q"]["content"]["word"]
            return complete(content=[{"type": "text", "text": f"{params['requestState']} {said}"}])
        question = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {}}}
        return complete() | {"resultType": "input_required", "inputRequests": {"q": question}, "requestState": "s1"}

    tools = complete(tools=[tool("echo"), tool("hidden")], ttlMs=60_000, cacheScope="private")
    return ModernUpstream(**{"tools/list": tools, "tools/call": answer})


class EachItsOwn:
    """Opens links to a modern server for each of the groups."""

    def __init__(self, up: ModernUpstream, other: ModernUpstream) -> None:
        self._openers = {"up": ModernOpener(up), "other": ModernOpener(other)}

    async def __call__(
        self, config: GroupConfig, listener: LinkOwner, hello: ClientInfo, *, lacks: Era | None = None
    ) -> tuple[AnyLink, ServerInfo]:
        return await self._openers[config.name](config, listener, hello, lacks=lacks)


async def test_a_call_that_waits_at_a_modern_server_goes_on_there_with_the_answers(tmp_path: Path) -> None:
    servers = [input_wanting() for _ in range(2)]
    code = 'return await call("up", "echo", {"n": 1})'
    scene = Scene(opener=EachItsOwn(servers[0], input_wanting()), state_folder=tmp_path)
    client = ModernClient(scene.proxy)
    parked = await ask(client, run(code))
    assert "inputRequests" in parked["result"], parked
    await end(scene, client)

    scene = Scene(opener=EachItsOwn(servers[1], input_wanting()), state_folder=tmp_path)
    client = ModernClient(scene.proxy)
    said = {"action": "accept", "content": {"word": "yes"}}
    done = await ask(client, {**run(code), **retry_of(parked, said)})
    assert done["result"]["content"][0]["text"] == '"s1 yes"'
    assert [len(each.heard("tools/call")) for each in servers] == [1, 1]
    await end(scene, client)


async def test_a_script_that_has_not_begun_asks_again_after_a_restart(tmp_path: Path) -> None:
    parked, params = await park(tmp_path, 'return await call("up", "echo", {"n": 1})')
    clock = FakeClock()
    scene = asking_scene(tmp_path, clock)
    client = ModernClient(scene.proxy)
    asked = await ask(client, {**params, **retry_of(parked, accept("once"))})
    (question,) = asked["result"]["inputRequests"].values()
    assert "Allow a script?" in question["params"]["message"]
    assert scene.upstream.heard("tools/call") == []
    await clock.pass_(READ_S)
    done = await ask(client, {**params, **retry_of(asked, accept("once"))})
    assert done["result"]["content"][0]["text"] == "1"
    await end(scene, client)


async def test_images_that_a_script_has_survive(tmp_path: Path) -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    code = 'image = await call("up", "hidden")\nname = "echo"\nawait call("other", name, {"n": 1})\nreturn image'

    def answer(params: Json) -> Json:
        return {"content": [image]} if params["name"] == "hidden" else answering(params)

    parked: Json = None
    for _ in range(2):
        clock = FakeClock()
        scene = asking_scene(tmp_path, clock)
        scene.upstream.answers["tools/call"] = answer
        client = ModernClient(scene.proxy)
        if parked is None:
            parked = await ask(client, run(code))
        else:
            asked = await ask(client, {**run(code), **retry_of(parked, accept("once"))})
            await clock.pass_(READ_S)
            done = await ask(client, {**run(code), **retry_of(asked, accept("once"))})
            assert done["result"]["content"] == [image]
        await end(scene, client)


# --- states in other hands -----------------------------------------------------------------------------


async def test_a_state_is_used_once(tmp_path: Path) -> None:
    parked, params = await park(tmp_path)
    scene = asking_scene(tmp_path, FakeClock())
    client = ModernClient(scene.proxy)
    again = {**params, **retry_of(parked, accept("once"))}
    ids = [client.begin("tools/call", again) for _ in range(3)]
    answers = [await patiently(client.answer_to, id) for id in ids]
    assert sorted("result" in each for each in answers) == [False, False, True]
    assert {reason(each) for each in answers if "error" in each} == {"used"}
    await end(scene, client)


async def test_a_state_that_another_process_uses_at_this_moment_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parked, _ = await park(tmp_path)
    folder = tmp_path / suspended_files.FOLDER
    process, number, _ = parked["result"]["requestState"].split(".", 3)[3].split("-", 2)
    id = f"{process}-{number}"
    first, second = SuspendedFiles(folder), SuspendedFiles(folder)
    exists = Path.exists

    def take_before(file: Path) -> bool:
        if file.suffix == ".script":
            monkeypatch.setattr(Path, "exists", exists)
            first.take(id, len)
        return exists(file)

    monkeypatch.setattr(Path, "exists", take_before)
    with pytest.raises(StateRefused) as refused:
        second.take(id, len)
    assert refused.value.reason == "used"


@pytest.mark.parametrize("change", ["code", "input", "principal", "profile", "key", "id", "short", "path"])
async def test_a_state_in_other_hands_or_for_another_call_is_refused(tmp_path: Path, change: str) -> None:
    parked, params = await park(tmp_path)
    scene = asking_scene(tmp_path, FakeClock(), profiles={"p": Profile("p", scripts=True)})
    retry = retry_of(parked, accept("once"))
    state: str = retry["requestState"]
    start, _, name = state.rpartition(".")
    process, number, key = name.split("-", 2)
    other = {
        "code": {**params, **run(MIDDLE + " ")},
        "input": {**params, **run(MIDDLE, 1)},
        "key": {"requestState": f"{start}.{process}-{number}-{'A' * 43}="},
        "id": {"requestState": f"{start}.{process}-{'0' * 16}-{key}"},
        "short": {"requestState": f"{start}.{process}"},
        "path": {"requestState": f"{start}.../../x-{number}-{key}"},
    }.get(change, {})
    client = ModernClient(scene.proxy, authentication=person("eve", "dev")) if change == "principal" else None
    if change == "profile":
        client = ModernClient(scene.proxy, profile="p")
    client = client or ModernClient(scene.proxy)
    answer = await ask(client, {**params, **retry, **other})
    assert reason(answer) in ("invalid", "restarted")
    assert scene.upstream.heard("tools/call") == scene.other.heard("tools/call") == []
    rightful = ModernClient(scene.proxy)
    asked = await ask(rightful, {**params, **retry})
    assert asked["result"]["resultType"] == "input_required"  # and the state is as good as before
    rightful.session.close()
    await end(scene, client)


async def test_a_state_of_a_process_that_lives_is_its_own(tmp_path: Path) -> None:
    first = asking_scene(tmp_path, FakeClock())
    client = ModernClient(first.proxy)
    parked = await ask(client, run(MIDDLE))
    second = asking_scene(tmp_path, FakeClock())
    thief = ModernClient(second.proxy)
    assert reason(await ask(thief, {**run(MIDDLE), **retry_of(parked)})) == "invalid"
    assert second.upstream.heard("tools/call") == []
    await end(second, thief)
    await end(first, client)


async def test_scripts_that_are_off_now_do_not_go_on(tmp_path: Path) -> None:
    parked, params = await park(tmp_path)
    scene = asking_scene(tmp_path, FakeClock(), profiles={"off": Profile("off", scripts=False)})
    client = ModernClient(scene.proxy, profile="off")
    answer = await ask(client, {**params, **retry_of(parked)})
    assert "no tool is named `run_dynamic_script`" in json.dumps(answer)
    await end(scene, client)


async def test_an_answer_after_the_deadline_says_so(tmp_path: Path) -> None:
    parked, params = await park(tmp_path)
    scene = asking_scene(tmp_path, FakeClock(), scripts=Scripts(total_s=1e-6))
    client = ModernClient(scene.proxy)
    answer = await ask(client, {**params, **retry_of(parked, accept("once"))})
    said = "\n".join(block["text"] for block in answer["result"]["content"])
    assert "it took more than 1e-06 s in all (the bound `total`)" in said
    assert "- up.hidden: done" in said
    assert scene.other.heard("tools/call") == []
    await end(scene, client)


async def test_a_longer_text_than_is_allowed_now_does_not_go_on(tmp_path: Path) -> None:
    parked, params = await park(tmp_path)
    scene = asking_scene(tmp_path, FakeClock(), scripts=Scripts(source=100))
    client = ModernClient(scene.proxy)
    answer = await ask(client, {**params, **retry_of(parked)})
    assert "100 are the most" in json.dumps(answer)
    await end(scene, client)


# --- on disk -------------------------------------------------------------------------------------------


async def test_what_is_kept_is_private_and_cannot_be_read_without_the_state(tmp_path: Path) -> None:
    await park(tmp_path, MIDDLE + '  # "a secret word"')
    (file,) = (tmp_path / suspended_files.FOLDER).glob("*.script")
    assert b"secret" not in file.read_bytes()
    assert is_private(file)
    assert is_private(file.parent)


async def test_a_script_that_goes_on_or_ends_leaves_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    scene = asking_scene(tmp_path, clock)
    client = ModernClient(scene.proxy)
    parked = await ask(client, run(MIDDLE))
    assert len([*(tmp_path / suspended_files.FOLDER).glob("*.script")]) == 1
    await clock.pass_(READ_S)
    done = await ask(client, {**run(MIDDLE), **retry_of(parked, accept("once"))})
    assert done["result"]["content"][0]["text"] == "[1, 2, 3]"
    assert [*(tmp_path / suspended_files.FOLDER).glob("*.script")] == []
    await end(scene, client)


async def test_a_script_that_a_person_has_denied_leaves_nothing(tmp_path: Path) -> None:
    code = 'return await call("up", "echo", {"n": 1})'
    clock = FakeClock()
    scene = asking_scene(tmp_path, clock)
    client = ModernClient(scene.proxy)
    parked = await ask(client, run(code))
    assert len([*(tmp_path / suspended_files.FOLDER).glob("*.script")]) == 1
    await clock.pass_(READ_S)
    done = await ask(client, {**run(code), **retry_of(parked, {"action": "decline"})})
    assert "denied" in json.dumps(done)
    assert [*(tmp_path / suspended_files.FOLDER).glob("*.script")] == []
    await end(scene, client)


async def test_a_script_that_asks_nothing_is_not_made_ready_to_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script_run, "_bind", None)
    scene = Scene(answering, state_folder=tmp_path)
    client = ModernClient(scene.proxy)
    done = await ask(client, run("return input", 1))
    assert done["result"]["content"][0]["text"] == "1"
    assert not (tmp_path / suspended_files.FOLDER).exists()
    await end(scene, client)


async def test_a_script_that_has_begun_after_its_one_question_does_not_begin_twice(tmp_path: Path) -> None:
    code = 'first = await call("other", "echo", {"n": 1})\nreturn await call("up", "hidden", {"n": 2})'
    clock = FakeClock()
    scene = asking_scene(tmp_path, clock)
    scene.upstream.answers.pop("tools/call")
    client = ModernClient(scene.proxy)
    parked = await ask(client, run(code))
    assert len([*(tmp_path / suspended_files.FOLDER).glob("*.script")]) == 1
    await clock.pass_(READ_S)
    client.begin("tools/call", {**run(code), **retry_of(parked, accept("once"))})
    await patiently(scene.upstream.hears, "tools/call")
    assert [*(tmp_path / suspended_files.FOLDER).glob("*.script")] == []
    await end(scene, client)


async def test_what_is_done_while_a_person_thinks_is_not_done_again_after_a_restart(tmp_path: Path) -> None:
    code = (
        "import asyncio\n"
        'tool = "echo"\n'
        "async def twice():\n"
        '    return [await call("up", "hidden", {"n": 1}), await call("up", "hidden", {"n": 2})]\n'
        'return await asyncio.gather(twice(), call("other", tool, {"n": 3}))'
    )
    clock = FakeClock()
    scene = asking_scene(tmp_path, clock)
    scene.upstream.answers.pop("tools/call")
    client = ModernClient(scene.proxy)
    parked = await ask(client, run(code))
    for number in (1, 2):
        call = await patiently(scene.upstream.hears, "tools/call", number)
        scene.upstream.say({"jsonrpc": "2.0", "id": call["id"], "result": text(number)})
    folder = tmp_path / suspended_files.FOLDER
    async with asyncio.timeout(SLOW_S):  # it waits again, for the person alone
        while await kept_calls(folder, parked, run(code)) != ["done", "done", ""]:  # noqa: ASYNC110 - a file raises no event
            await asyncio.sleep(0.02)
    await end(scene, client)

    clock = FakeClock()
    scene = asking_scene(tmp_path, clock)
    client = ModernClient(scene.proxy)
    asked = await ask(client, {**run(code), **retry_of(parked)})
    await clock.pass_(READ_S)
    done = await ask(client, {**run(code), **retry_of(asked, accept("once"))})
    assert done["result"]["content"][0]["text"] == "[[1, 2], 3]"
    assert scene.upstream.heard("tools/call") == []
    await end(scene, client)


def copy_scripts(folder: Path, other: Path) -> None:
    for file in folder.glob("*.script"):
        shutil.copy(file, other)


async def kept_calls(folder: Path, parked: Json, params: Json) -> list[str]:
    """Return the outcomes of the calls of the script on disk, as another process would find them."""
    name = parked["result"]["requestState"].split(".", 3)[3]
    with tempfile.TemporaryDirectory() as other:
        await asyncio.to_thread(copy_scripts, folder, Path(other))
        try:
            scripts = SuspendedScripts(SuspendedFiles(Path(other)), lambda: None)
            script = await scripts.take(name, binding_of(params))
        except StateRefused:
            return []
    return [call.outcome for call in sorted(script.calls, key=lambda each: each.name == "echo")]


@pytest.mark.parametrize(("name", "most"), [("MOST_FILES", 0), ("MOST_BYTES_OF_ONE", 10), ("MOST_BYTES", 0)])
async def test_what_is_too_much_is_not_kept_and_goes_on_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, most: int
) -> None:
    monkeypatch.setattr(suspended_files, name, most)
    parked, params = await park(tmp_path)
    scene = asking_scene(tmp_path, FakeClock())
    client = ModernClient(scene.proxy)
    assert reason(await ask(client, {**params, **retry_of(parked)})) == "restarted"
    await end(scene, client)


async def test_what_is_old_is_removed(tmp_path: Path) -> None:
    await park(tmp_path)
    (old,) = (tmp_path / suspended_files.FOLDER).glob("*.script")
    os.utime(old, (1, 1))
    await park(tmp_path)
    assert not old.exists()


async def test_a_disk_that_is_full_keeps_no_script_from_going_on(tmp_path: Path) -> None:
    (tmp_path / suspended_files.FOLDER).write_text("in the way")
    clock = FakeClock()
    scene = asking_scene(tmp_path, clock)
    client = ModernClient(scene.proxy)
    parked = await ask(client, run(MIDDLE))
    await clock.pass_(READ_S)
    done = await ask(client, {**run(MIDDLE), **retry_of(parked, accept("once"))})
    assert done["result"]["content"][0]["text"] == "[1, 2, 3]"
    await end(scene, client)

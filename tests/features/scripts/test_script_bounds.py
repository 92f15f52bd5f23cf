"""What a script may use up, and scripts that try to take more, or to get out."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

from dynamic_mcp.config.resolved import Timeouts
from dynamic_mcp.features.scripts import sandbox
from dynamic_mcp.features.scripts.config import Scripts
from dynamic_mcp.features.scripts.workers import SPARE_FOR_S, WorkerKind, WorkerPool
from dynamic_mcp.system.clock import LoopClock
from tests.fakes import FakeClock, Json, text_of
from tests.features.scripts.scene import SLOW_S, echo, patiently, scripting, text

# with so much memory that the time is over first
QUICK = Scripts(cpu_s=0.3, calls=10, memory=1_000_000_000)


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "def f():\n  while True:\n    try:\n      while True: pass\n    finally:\n      continue\nf()",
        "x = [0] * 10\nfor i in range(12): x = [x] * 10\nreturn x",  # 10**12 elements as JSON
        'import re\nfor n in range(10**9): re.match("(a|aa)+(a*)*$", "a" * 60 + "b")',
    ],
)
async def test_a_script_that_computes_for_too_long_is_ended(code: str) -> None:
    async with scripting(scripts=QUICK) as (_, client):
        said = await client.failure(code)
        assert "it computed for more than 0.3 s without a call (the bound `cpu`)" in said


@pytest.mark.parametrize(
    "code",
    [
        'return "a" * 10**12',
        'x = "a" * (4 << 20)\nwhile True: x += x',
        "x = 10 ** 10 ** 8",
        'x = "a" * (30 << 20)\nreturn [x] * 20',
        'x = "a" * (10 << 20)\nreturn [str(n) + x for n in range(10)]',  # 100 MB
        'x = "a" * (30 << 20)\nawait call("up", "echo", {"a": [x] * 20})',
    ],
)
async def test_a_script_that_takes_too_much_memory_is_ended(code: str) -> None:
    async with scripting(echo) as (_, client):
        assert "it needed more than 64 MB of memory (the bound `memory`)" in await client.failure(code)


async def test_a_script_that_recurses_for_ever_is_ended() -> None:
    async with scripting() as (_, client):
        assert "RecursionError" in await client.failure("def f(): return f()\nf()")


async def test_a_script_that_prints_for_ever_is_ended() -> None:
    async with scripting() as (_, client):
        said = await client.failure('while True: print("x" * 1000)')
        assert "it printed more than 16000 bytes (the bound `output`)" in said


async def test_a_script_that_calls_too_often_is_ended_even_if_it_catches_all() -> None:
    async with scripting(echo, scripts=QUICK) as (scene, client):
        code = 'while True:\n    try:\n        await call("up", "echo", {})\n    except BaseException:\n        pass'
        said = await client.failure(code)
        assert "it made more than 10 calls (the bound `calls`)" in said
        assert len(scene.upstream.heard("tools/call")) == 10


async def test_ten_thousand_calls_at_once_are_no_more_than_the_bound() -> None:
    async with scripting(echo, scripts=Scripts(calls=20, parallel=2)) as (scene, client):
        said = await client.failure(
            'import asyncio\nawait asyncio.gather(*[call("up", "echo", {"n": n}) for n in range(10_000)])'
        )
        assert "it made more than 20 calls (the bound `calls`)" in said
        assert len(scene.upstream.heard("tools/call")) <= 20


async def test_only_so_many_calls_run_at_once() -> None:
    async with scripting(scripts=Scripts(parallel=2)) as (scene, client):
        code = 'import asyncio\nreturn await asyncio.gather(*[call("up", "echo", {"n": n}) for n in range(5)])'
        running = asyncio.create_task(client.value(code))
        for number in range(1, 6):
            await patiently(scene.upstream.hears, "tools/call", number)
            questions = scene.upstream.heard("tools/call")
            assert len(questions) <= number + 1
            question = questions[number - 1]
            scene.upstream.say({"jsonrpc": "2.0", "id": question["id"], "result": text(number)})
        assert await running == [1, 2, 3, 4, 5]


async def test_a_script_that_takes_too_long_in_all_is_ended_and_its_calls_are_cancelled() -> None:
    clock = FakeClock()
    async with scripting(clock=clock) as (scene, client):
        running = asyncio.create_task(client.failure('await call("up", "echo", {})'))
        await patiently(scene.upstream.hears, "tools/call")
        await clock.pass_(121)
        said = await running
        assert "it took more than 120 s in all (the bound `total`)" in said
        assert "- up.echo: it was cancelled, and may have run" in said
        await patiently(scene.upstream.hears, "notifications/cancelled")


async def test_a_script_that_swallows_all_cannot_go_on_after_a_bound() -> None:
    clock = FakeClock()
    async with scripting(clock=clock) as (scene, client):
        code = (
            "while True:\n"
            "    try:\n"
            '        await call("up", "echo", {})\n'
            "    except BaseException:\n"
            '        print("caught")'
        )
        running = asyncio.create_task(client.failure(code))
        await patiently(scene.upstream.hears, "tools/call")
        await clock.pass_(121)
        said = await running
        assert "the bound `total`" in said
        assert "caught" not in said
        assert len(scene.upstream.heard("tools/call")) == 1


async def test_an_answer_that_comes_after_the_end_of_its_script_changes_nothing() -> None:
    clock = FakeClock()
    async with scripting(clock=clock) as (scene, client):
        running = asyncio.create_task(client.failure('print(await call("up", "echo", {}))'))
        question = await patiently(scene.upstream.hears, "tools/call")
        await clock.pass_(121)
        said = await running
        scene.upstream.say({"jsonrpc": "2.0", "id": question["id"], "result": text("late")})
        assert await client.value("return 1") == 1
        assert "late" not in said


async def test_a_text_that_is_too_long_is_not_run() -> None:
    async with scripting() as (_, client):
        said = await client.failure("x = 1\n" * 20_000)
        assert "the script has 120000 bytes, and 64000 are the most" in said


async def test_a_call_that_is_never_awaited_does_not_outlive_its_script() -> None:
    async with scripting() as (scene, client):
        code = 'import asyncio\nasync def f(): return await call("up", "echo")\ntask = f()\nreturn 1'
        assert await client.value(code) == 1
        code = (
            "import asyncio\n"
            "async def fail(): raise ValueError('at once')\n"
            'await asyncio.gather(call("up", "echo"), fail())'
        )
        assert "ValueError: at once" in await client.failure(code)
        if scene.upstream.heard("tools/call"):
            await patiently(scene.upstream.hears, "notifications/cancelled")


@pytest.mark.parametrize(
    "code",
    [
        'return open("/etc/passwd").read()',
        "import socket",
        "import subprocess",
        "import ctypes",
        "import sys\nreturn sys.modules",
        "import os\nreturn dict(os.environ)",
        'import os\nreturn os.system("id")',
        "import os\nreturn os.listdir('/')",
        "from pathlib import Path\nreturn [str(each) for each in Path('/').iterdir()]",
        '__import__("os").system("id")',
        "return ().__class__.__base__.__subclasses__()",
        "return call.__globals__",
        "return call.__code__",
        'return getattr(call, "__glo" + "bals__")',
        'return eval("__builtins__")',
        "import pydantic_monty",
        "import dynamic_mcp",
    ],
)
async def test_there_is_no_way_out(code: str) -> None:
    async with scripting() as (_, client):
        await client.failure(code)


@pytest.mark.parametrize(
    "code",
    [
        'return "{0.__globals__}".format(call)',
        'return f"{call.__globals__}"',
        "return (lambda: 0).__code__.co_consts",
        "async def f(): pass\nreturn f().cr_frame.f_globals",
        "return (each for each in []).gi_frame",
        "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    return error.__traceback__.tb_frame",
        "return type('X', (object,), {})()",
        "return object.__getattribute__(call, '__globals__')",
        "return vars(call)",
        "import builtins\nreturn builtins.open('/etc/passwd').read()",
        "import importlib\nreturn importlib.import_module('os').environ",
        "from os import environ\nreturn environ['PATH']",
        "import os\nreturn os.getenv('PATH') or 1 / 0",
        "from pathlib import Path\nreturn Path('/../../etc/passwd').read_text()",
        "from pathlib import Path\nreturn Path('/proc/self/environ').read_bytes()",
        'from pathlib import Path\nreturn Path("/etc/passwd\\0.txt").read_text()',
        "import os\nreturn os.symlink('/', '/x')",
        "import os\nreturn os.fork()",
        "import time\nreturn time.__loader__",
        "await _call.__call__('up', 'echo', '{}')",
        "return _read.__globals__",
        "return details.__closure__",
    ],
)
async def test_no_other_way_is_known_either(code: str) -> None:
    async with scripting() as (scene, client):
        said = await client.failure(code)
        assert "root:" not in said
        assert os.environ["PATH"] not in said
        assert scene.upstream.heard("tools/call") == []


async def test_a_value_that_contains_itself_ends() -> None:
    async with scripting() as (_, client):
        assert await client.value("x = []\nx.append(x)\nreturn x") == ["[...]"]


async def test_no_file_is_written(tmp_path: Path) -> None:
    async with scripting() as (_, client):
        await client.failure('open(input, "w").write("x")', str(tmp_path / "here"))
    assert not (tmp_path / "here").exists()


async def test_what_a_script_replaces_is_its_own_loss() -> None:
    async with scripting(echo) as (scene, client):
        assert await client.value("call = 5\nreturn call") == 5
        assert "TypeError" in await client.failure('call = 5\nawait call("up", "echo")')
        assert "no JSON" in await client.failure('_encode = lambda value: "{no JSON"\nreturn 1')
        assert "TypeError" in await client.failure("await _call(1, 2, {})")
        assert "TypeError" in await client.failure('await _call("up", "echo", "{}", "more", name=1)')
        assert scene.upstream.heard("tools/call") == []
        assert await client.value('return await call("up", "echo", {"a": 1})') == {"a": 1}  # and not of the next


async def test_arguments_that_are_no_json_are_not_sent() -> None:
    async with scripting(echo) as (scene, client):
        assert "TypeError" in await client.failure('await call("up", "echo", {"a": {1, 2}})')
        assert "ToolError" in await client.failure(
            'await _call("up", "echo", "{\\"a\\": 1")\nawait call("up", str("nope"))'
        )
        assert scene.upstream.heard("tools/call") == []


async def test_arguments_cannot_become_other_members_of_the_request() -> None:
    async with scripting(echo) as (scene, client):
        for written in ('{}},"name":"hidden","z":{"a":{}', '{},"name":"hidden"', "", "{} {}"):
            answer = await client.run('return await _call("up", "echo", input)', written)
            assert "the arguments are no JSON" in text_of(answer)
        assert scene.upstream.heard("tools/call") == []


async def test_a_wrong_number_of_arguments_is_an_error_of_the_script() -> None:
    async with scripting(echo) as (_, client):
        for code in ('await _call("up", "echo", "{}", "x")', 'await _tools("up", "echo", "x")'):
            assert "TypeError: _" in await client.failure(code)


async def test_a_handle_of_another_script_shows_nothing() -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    async with scripting({"content": [image]}) as (_, client):
        code = 'image = await call("up", "echo")\nreturn "handle: " + image["handle"]'
        handle = (await client.value(code)).removeprefix("handle: ")
        result = await client.run('await call("up", "echo")\nreturn input', {"type": "image", "handle": handle})
        assert len(result["content"]) == 1


async def test_a_cancelled_script_cancels_its_calls_and_ends_its_worker() -> None:
    async with scripting() as (scene, client):
        client.send(
            {
                "jsonrpc": "2.0",
                "id": "s",
                "method": "tools/call",
                "params": {"name": "run_dynamic_script", "arguments": {"code": 'await call("up", "echo")'}},
            }
        )
        await patiently(scene.upstream.hears, "tools/call")
        client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "s"}})
        await patiently(scene.upstream.hears, "notifications/cancelled")
        assert await client.value("return 1") == 1


def workers() -> list[int]:
    """Return the processes of the sandbox that this one has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == os.getpid() and b"monty\0subprocess" in command:
                found.append(int(entry.name))
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows processes in /proc")
async def test_a_worker_that_is_killed_fails_its_script_alone() -> None:
    async with scripting(echo, scripts=Scripts(cpu_s=20)) as (scene, client):
        for code in ('await call("up", "echo")\nwhile True: pass', "while True: pass"):
            running = asyncio.create_task(client.failure(code))
            if "call" in code:
                await patiently(scene.upstream.hears, "tools/call")
            while not running.done():  # a worker that waits for its first script may be hit, too
                for pid in workers():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                await asyncio.sleep(0.02)
            said = await running
            assert "the process that ran the script has ended unexpectedly" in said
            assert ("up.echo" in said) == ("call" in code)
        assert await client.value("return 1") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows processes in /proc")
async def test_no_worker_outlives_its_script() -> None:
    async with scripting(scripts=Scripts(cpu_s=20)) as (scene, client):
        running = asyncio.create_task(client.value('return await call("up", "echo")'))
        question = await patiently(scene.upstream.hears, "tools/call")
        assert len(workers()) == 1
        scene.upstream.say({"jsonrpc": "2.0", "id": question["id"], "result": text("7")})
        assert await running == 7
        assert len(workers()) <= 1  # the next one


async def see_workers(count: int) -> None:
    """Wait until there are so many workers."""
    async with asyncio.timeout(SLOW_S):
        while len(workers()) != count:  # noqa: ASYNC110 - a process raises no event
            await asyncio.sleep(0.02)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows processes in /proc")
async def test_a_worker_is_ready_for_the_next_script_and_ends_after_a_minute_without_one() -> None:
    clock = FakeClock()
    async with scripting(clock=clock) as (_, client):
        assert await client.value("return 1") == 1
        async with asyncio.timeout(SLOW_S):
            while SPARE_FOR_S not in clock.sleeps():  # noqa: ASYNC110 - a process has to begin
                await asyncio.sleep(0.02)
        assert len(workers()) == 1
        await clock.pass_(SPARE_FOR_S)
        await see_workers(0)
        assert await client.value("return 2") == 2


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows processes in /proc")
async def test_a_worker_that_was_killed_before_it_had_a_script_fails_none() -> None:
    async with scripting() as (_, client):
        assert await client.value("return 1") == 1
        await see_workers(1)
        os.kill(workers()[0], signal.SIGKILL)
        assert await client.value("return 2") == 2


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows processes in /proc")
@pytest.mark.parametrize(
    ("code", "is_waiting"),
    [
        ("while True: pass", False),
        ('print("begun")\nwhile True: pass', False),
        ('await call("up", "echo")', True),
        ('import asyncio\nawait asyncio.gather(*[call("up", "echo") for n in range(3)])', True),
        ('try:\n    await call("up", "echo")\nfinally:\n    await call("up", "echo")', True),
    ],
)
async def test_a_worker_that_is_killed_anywhere_ends_its_script_and_leaves_nothing(
    code: str, *, is_waiting: bool
) -> None:
    async with scripting(scripts=Scripts(cpu_s=20)) as (scene, client):
        running = asyncio.create_task(client.failure(code))
        if is_waiting:
            await patiently(scene.upstream.hears, "tools/call")
        async with asyncio.timeout(SLOW_S):
            while not running.done():
                for pid in workers():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                for question in scene.upstream.heard("tools/call"):
                    scene.upstream.say({"jsonrpc": "2.0", "id": question["id"], "result": text("1")})
                await asyncio.sleep(0.02)
        said = await running
        assert "the process that ran the script has ended unexpectedly" in said
        assert ("up.echo" in said) is is_waiting
        assert await client.value("return 1") == 1


async def test_scripts_that_wait_do_not_keep_others_from_running() -> None:
    count = 2 * (os.cpu_count() or 1) + 1  # more than there may be workers
    async with scripting() as (scene, client):
        code = 'numbers = [input]\nnumbers.append(await call("up", "echo", {}))\nreturn numbers'
        waiting = [asyncio.create_task(client.value(code, number)) for number in range(count)]
        await patiently(scene.upstream.hears, "tools/call", count)
        assert await client.value("return 1") == 1
        for number, question in enumerate(scene.upstream.heard("tools/call")):
            scene.upstream.say({"jsonrpc": "2.0", "id": question["id"], "result": text(str(number))})
        assert sorted(number for number, _ in await asyncio.gather(*waiting)) == [*range(count)]


async def test_scripts_that_wait_have_a_bound_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MOST_WAITING_BYTES", 200_000)
    async with scripting() as (scene, client):
        code = 'kept = "x" * input\nawait call("up", "echo")\nreturn len(kept)'
        small = asyncio.create_task(client.value(code, 10))
        await patiently(scene.upstream.hears, "tools/call")
        said = await client.failure(code, 300_000)
        assert "the scripts that wait need more than 0.2 MB together" in said
        assert "- up.echo: it was cancelled, and may have run" in said
        question = scene.upstream.heard("tools/call")[0]
        scene.upstream.say({"jsonrpc": "2.0", "id": question["id"], "result": text("1")})
        assert await small == 10


async def test_clients_take_turns_for_workers() -> None:
    order: list[str] = []
    is_first_in, others_wait = asyncio.Event(), asyncio.Event()

    async def work(client: str) -> None:
        async with pool.worker(WorkerKind({}, is_confined=False), client) as worker:
            order.append(client)
            assert await worker.session.feed_run("1 + 1") == 2
            is_first_in.set()
            await others_wait.wait()

    pool = WorkerPool(LoopClock(), most=1)
    try:
        async with asyncio.timeout(SLOW_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(work("many"))
            await is_first_in.wait()
            for client in ("many", "many", "many", "few"):
                tasks.create_task(work(client))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            others_wait.set()
    finally:
        await pool.close()
    assert order == ["many", "many", "few", "many", "many"]


@pytest.mark.full
async def test_two_hundred_scripts_that_wait_each_get_their_own_answers() -> None:
    def number_of(question: Json) -> int:
        number: int = question["params"]["arguments"]["n"]
        return number

    patient = Timeouts(connect_s=5, tools_s=100, resources_s=5, prompts_s=5)
    async with scripting(group={"timeouts": patient, "concurrency": 200}) as (scene, client):
        code = 'return [input, await call("up", "echo", {"n": input})]'
        waiting = [asyncio.create_task(client.value(code, number)) for number in range(200)]
        await patiently(scene.upstream.hears, "tools/call", 200)
        assert await client.value("return 1") == 1
        for question in scene.upstream.heard("tools/call"):
            answer = text(number_of(question))
            scene.upstream.say({"jsonrpc": "2.0", "id": question["id"], "result": answer})
        assert await asyncio.gather(*waiting) == [[number, number] for number in range(200)]

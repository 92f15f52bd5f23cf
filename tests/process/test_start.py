"""How the program starts: what it loads, what it says, and what it does with a config that is wrong."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dynamic_mcp.features.table import FEATURES
from dynamic_mcp.system import paths
from tests import own_process
from tests.own_process import OWN
from tests.program import BOUND_S, odd, running, serving, window_command
from tests.windows import user_dir

if sys.platform != "win32":
    import pty


def run(*args: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the program with an empty stdin."""
    clean = {name: value for name, value in os.environ.items() if name != "DYNAMIC_MCP_CONFIG"}
    home = {"XDG_CONFIG_HOME": str(cwd / "config")}
    command = window_command(*args)[len(OWN) :]
    done = own_process.run(*command, cwd=cwd, env={**clean, **home, **env})
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"mcpServers": {"github": {"command": "x", "timeout": {"tools": "5 parsecs"}}}}', "github.timeout.tools"),
        ('{"mcpServers": {"a": {"command": "x", "descripton": "d"}}}', "description"),
        ('{"mcpServers": {"a": {}}}', "mcpServers.a"),
        ('{"mcpServers": {\n  "a": oops }}', "line 2"),
        ("", "empty"),
        ("[]", "object"),
    ],
)
def test_a_wrong_config_is_named_on_stderr_with_exit_code_2(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "wrong.json"
    file.write_text(text)
    done = run(str(file), cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "wrong.json" in done.stderr
    assert said in done.stderr


@pytest.mark.alone_only("it compares two ways to serve alone")
@pytest.mark.parametrize("text", ['{"mcpServers": {"a": {"command": 1}}}', "oops", '{"mcpServers": {}}', None])
def test_a_config_named_alone_is_served_as_serve_does_it(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "dynamic-mcp.json"
    if text is not None:
        file.write_text(text)
    alone, by_name = run(str(file), cwd=tmp_path), run("serve", str(file), cwd=tmp_path)
    nothing, by_nothing = run(cwd=tmp_path), run("serve", cwd=tmp_path)
    for one, other in ((alone, by_name), (nothing, by_nothing)):
        assert (one.returncode, one.stdout, one.stderr) == (other.returncode, other.stdout, other.stderr)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    done = run("nowhere.json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "nowhere.json" in done.stderr


def test_without_an_argument_the_config_is_found_in_the_usual_places(tmp_path: Path) -> None:
    nothing = run(cwd=tmp_path)
    assert nothing.returncode == 2
    assert "dynamic-mcp.json" in nothing.stderr
    usual = user_dir(tmp_path / "config")
    usual.mkdir(parents=True, exist_ok=True)
    (usual / "dynamic-mcp.json").write_text('{"mcpServers": {}}')
    assert run(cwd=tmp_path).returncode == 0
    (tmp_path / "dynamic-mcp.json").write_text("broken")
    assert run(cwd=tmp_path).returncode == 2
    named = tmp_path / "named.json"
    named.write_text('{"mcpServers": {}}')
    assert run(cwd=tmp_path, DYNAMIC_MCP_CONFIG=str(named)).returncode == 0


@pytest.mark.alone_only("nothing serves")
def test_version_and_help_go_to_stdout(tmp_path: Path) -> None:
    for word, said in (("--version", "dynamic-mcp "), ("--help", "Usage: dynamic-mcp")):
        done = subprocess.run([*OWN, word], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
        assert said in done.stdout
        assert done.stderr == ""


@pytest.mark.alone_only("it looks at what the serving process has loaded")
def test_serving_stdio_servers_imports_nothing_that_only_others_need(
    tmp_path: Path,
) -> None:
    config = tmp_path / "c.json"
    config.write_text(json.dumps({"mcpServers": {"good": odd()}}))
    code = (
        "import sys; from dynamic_mcp.cli.main import run\n"
        f"run([{str(config)!r}])\n"
        "print(*sorted(sys.modules), file=sys.stderr)"
    )
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
    asked = {"name": "get_dynamic_tools", "arguments": {"group": "good"}}
    tools = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": asked}
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=f"{json.dumps(hello)}\n{json.dumps(tools)}\n",
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert '"echo' in done.stdout.replace("\\", "")
    loaded = set(done.stderr.splitlines()[-1].split())
    assert "dynamic_mcp.upstream.stdio" in loaded
    unwanted = {"mcp", "mcp_types", "httpx2", "authlib", "rich", "questionary", "click", "pydantic", "pydantic_core"}
    unwanted |= {"dynamic_mcp.config.clients", "dynamic_mcp.face.http", "dynamic_mcp.host.http_service", "httptools"}
    assert not loaded & unwanted


@pytest.mark.alone_only("it looks at what modules load")
@pytest.mark.parametrize(
    ("modules", "without"),
    [
        (("oauth.tokens", "web.endpoints"), ("mcp", "mcp_types", "pydantic", "cryptography")),
        (
            (
                "features.login_server.provider",
                "features.login_server.oidc",
                "face.auth.upstream_login",
                "oauth.links",
            ),
            ("mcp", "mcp_types", "pydantic", "authlib", "httpx2"),
        ),
    ],
    ids=["a renewal", "serving logins"],
)
def test_what_only_a_login_needs_comes_with_the_first(modules: tuple[str, ...], without: tuple[str, ...]) -> None:
    names = [f"dynamic_mcp.{name}" for name in modules]
    code = f"import sys; from importlib import import_module; [*map(import_module, {names})]; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "dynamic_mcp" in loaded
    assert not loaded & {*without}


# Own modules that a start loads before the answer to `initialize`. It only ever gets smaller.
MOST_AT_THE_START = 108 if sys.platform == "win32" else 105
# Of features that no config here asks for, of other ways in, and of what comes with the first server or call.
NOT_AT_THE_START = (
    "asgi", "cli.client", "cli.commands", "config.clients", "config.http", "config.model", "config.problems",
    "config.watch", "doctor", "embeddings", "face.auth", "face.http", "face.shim", "face.socket", "host.daemon",
    "host.http_control", "host.http_service", "host.observing", "host.reloader",
    "importer", "mcp.elicitation", "mcp.mirrored_headers", "mcp.names", "mcp.selection", "middleware", "oauth",
    "observe.proxies", "policy", "proxy.allowed_lists",
    "proxy.authorization", "proxy.cache_hints", "proxy.calls", "proxy.client_events", "proxy.completion",
    "proxy.elicitations", "proxy.direct_listing", "proxy.listed_names", "proxy.logins", "proxy.message_rules",
    "proxy.parked_calls", "proxy.connected_users", "proxy.profiles", "proxy.prompts", "proxy.request_state",
    "proxy.resources", "proxy.result_store", "proxy.search", "proxy.status", "proxy.tasks", "proxy.transparent",
    "proxy.upstream_messages", "proxy.workspaces", "features.plugins",
    "search", "session.batches", "session.continuation", "session.modern", "system.shell",
    "tools.detail", "tools.results", "tools.schema", "upstream.call",
    "upstream.cli", "upstream.http", "upstream.link", "upstream.opener", "upstream.process.child",
    "upstream.remote", "upstream.stdio", "web",
    *(f"features.{feature.name}" for feature in FEATURES),
)  # fmt: skip
HELLO = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-03-26"}}
# Prints the modules that were there before the first answer, those that were once the rest was loaded, and all.
WATCH_MODULES = """
import logging, sys
from dynamic_mcp.session.legacy import Session
serve = Session.serve
async def watched(self, request):
    answered = await serve(self, request)
    if request.method == "initialize":
        print(*sys.modules, file=sys.stderr, flush=True)
    return answered
Session.serve = watched
def watch_log(record):
    if record.getMessage() == "preloaded the modules for clients":
        print("later", *sys.modules, file=sys.stderr, flush=True)
    return True
logging.getLogger("dynamic_mcp").addFilter(watch_log)
from dynamic_mcp.cli.main import run
run([sys.argv[1]])
print(*sys.modules, file=sys.stderr)
"""


@contextlib.contextmanager
def start_watched(config: Path) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    command, env = [sys.executable, "-c", WATCH_MODULES, str(config)], {**os.environ, "DYNAMIC_MCP_LOG": "debug"}
    with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True, bufsize=1) as process:
        bound = threading.Timer(BOUND_S, process.kill)
        bound.start()
        try:
            yield process
        finally:
            bound.cancel()


def own_modules(line: str) -> set[str]:
    return {name for name in line.split() if name.startswith("dynamic_mcp.")}


@pytest.mark.alone_only("it looks at what the serving process has loaded")
def test_the_first_answer_needs_no_module_of_what_is_not_configured(tmp_path: Path) -> None:
    config = tmp_path / "c.json"
    config.write_text(json.dumps({"mcpServers": {"good": odd()}}))
    with start_watched(config) as process:
        said, errors = process.communicate(f"{json.dumps(HELLO)}\n", timeout=30)
    assert json.loads(said)["id"] == 1
    loaded = own_modules(next(line for line in errors.splitlines() if "dynamic_mcp.errors" in line))
    unwanted = tuple(f"dynamic_mcp.{name}" for name in NOT_AT_THE_START)
    assert not [
        name for name in loaded if name.startswith(tuple(f"{each}." for each in unwanted)) or name in unwanted
    ]
    assert len(loaded) <= MOST_AT_THE_START


@pytest.mark.posix_only("a pipe of Windows does not hold all that this program prints before it is read")
@pytest.mark.alone_only("it looks at what the serving process has loaded")
def test_what_a_server_is_known_to_have_is_compared_with_its_pins_by_a_few_modules_more(tmp_path: Path) -> None:
    config = tmp_path / "c.json"
    config.write_text(json.dumps({"mcpServers": {"good": odd()}}))
    call = {"name": "call_dynamic_tool", "arguments": {"group": "good", "name": "echo", "args": {"text": "hi"}}}
    with start_watched(config) as process:
        request = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{json.dumps(HELLO)}\n{json.dumps(request)}\n")
        assert {json.loads(process.stdout.readline())["id"] for _ in range(2)} == {1, 2}
        while not [*paths.cache_dir().rglob("*.json")]:  # which is written beside the answer
            time.sleep(0.01)
        process.communicate(timeout=30)
    with start_watched(config) as process:
        _, errors = process.communicate(f"{json.dumps(HELLO)}\n", timeout=30)
    loaded = own_modules(next(line for line in errors.splitlines() if "dynamic_mcp.errors" in line))
    pins = {name for name in loaded if name.startswith("dynamic_mcp.features.pins")}
    assert pins
    assert len(loaded - pins) <= MOST_AT_THE_START
    assert len(pins) <= 6


@pytest.mark.alone_only("it looks at what the serving process has loaded")
def test_what_a_client_may_come_to_is_loaded_after_the_first_answer(tmp_path: Path) -> None:
    config = tmp_path / "c.json"
    config.write_text(json.dumps({"mcpServers": {"good": odd()}}))
    call = {"name": "call_dynamic_tool", "arguments": {"group": "good", "name": "echo", "args": {"text": "hi"}}}
    later = [("tools/list", {}), ("tools/call", call), ("prompts/list", {}), ("resources/list", {}), ("ping", {})]
    requests = [
        {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        for number, (method, params) in enumerate(later, start=2)
    ]
    with start_watched(config) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(f"{json.dumps(HELLO)}\n")
        log = iter(process.stderr.readline, "")
        at_first = own_modules(next(line for line in log if "dynamic_mcp.errors" in line))
        before = own_modules(next(line for line in log if line.startswith("later ")))
        said, errors = process.communicate("".join(f"{json.dumps(each)}\n" for each in requests), timeout=30)
    assert {json.loads(line)["id"] for line in said.splitlines()} >= {1, 2, 3, 4, 5, 6}
    assert "isError" not in said
    after = own_modules(errors.splitlines()[-1])
    assert at_first < before
    assert after - before <= {
        "dynamic_mcp.config.directory_watcher"
    }  # loaded with the watch on the config, in a thread


async def test_initialize_is_answered_while_every_server_hangs(tmp_path: Path) -> None:
    async with serving(tmp_path, {f"h{n}": odd("hang_init") for n in range(5)}) as program:
        listed = await program.request("tools/list")
        assert [tool["name"] for tool in listed["result"]["tools"]] == ["get_dynamic_tools", "call_dynamic_tool"]


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_every_known_protocol_version_is_spoken(tmp_path: Path, version: str) -> None:
    file = tmp_path / "c.json"
    file.write_text('{"mcpServers": {}}')
    async with running(str(file)) as program:
        assert (await program.initialize(version=version))["result"]["protocolVersion"] == version


@pytest.mark.posix_only("a pseudo-terminal, as POSIX systems have them")
async def test_on_a_terminal_it_says_what_it_is_and_serves_all_the_same(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text('{"mcpServers": {}}')
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *window_command(str(file)), stdin=theirs, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    os.close(theirs)
    async with asyncio.timeout(30):
        said = await process.stderr.readline()
        assert b"dynamic-mcp is an MCP server" in said
        os.write(ours, b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        assert json.loads(await process.stdout.readline())["id"] == 1
        os.write(ours, b"\x04")
        assert await process.wait() == 0
    os.close(ours)


@pytest.mark.alone_only("a daemon has no stdout, and a window runs nothing that prints")
async def test_a_stray_print_cannot_break_the_protocol(tmp_path: Path) -> None:
    config = tmp_path / "c.json"
    config.write_text('{"mcpServers": {}}')
    code = (
        "import os, dynamic_mcp.session.legacy as s\n"
        "serve = s.Session.serve\n"
        "async def chatty(*args):\n"
        "    print('stray', flush=True); os.write(1, b'stray')\n"
        "    return await serve(*args)\n"
        "s.Session.serve = chatty\n"
        "from dynamic_mcp.cli.main import run\n"
        f"run([{str(config)!r}])"
    )
    done = subprocess.run(  # noqa: ASYNC221 - nothing else runs in this test
        [sys.executable, "-c", code],
        input='{"jsonrpc":"2.0","id":1,"method":"ping"}\n',
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert json.loads(done.stdout) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert done.stderr.replace(str(config), "").count("stray") == 2

"""The whole program in front of a server that wants a login: the first one, and all that comes after it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests import own_process
from tests.conformance.peers import MODERN, connected
from tests.own_process import DEVNULL
from tests.program import BOUND_S, UPSTREAMS, Program, browser_command, running, started, text_of
from tests.upstreams.auth_server import AuthServer
from tests.web import web_client

Json = Any  # whatever JSON a test writes down
BROWSER = browser_command(UPSTREAMS / "browser.py")
NOBODY = {"BROWSER": "", "DISPLAY": "", "WAYLAND_DISPLAY": "", "SSH_CONNECTION": "here"}
SOMEBODY = {"BROWSER": BROWSER}
TAKES_LINKS: Json = {"elicitation": {"url": {}}}


@pytest.fixture
async def server() -> AsyncIterator[AuthServer]:
    async with AuthServer() as server:
        yield server


def config(folder: Path, url: str, *, settings: Json = None, **fields: Json) -> Path:
    file = folder / "dynamic-mcp.json"
    servers = {"guarded": {"url": url, **fields}}
    file.write_text(json.dumps({"mcpServers": servers, "settings": settings or {}}))
    return file


async def auth(*args: str, env: Mapping[str, str] = NOBODY, stdin: bytes = b"") -> tuple[int, str, str]:
    """Run `dynamic-mcp auth …` and return its exit code, its data and its words."""
    done = await asyncio.to_thread(own_process.run, "auth", *args, stdin=stdin, env={**os.environ, **env})
    return done.returncode, done.stdout.decode(), done.stderr.decode()


async def logged_in(file: Path) -> None:
    """Log in once, as a person at a desk does."""
    code, _, words = await auth("login", "guarded", "-c", str(file), env=SOMEBODY)
    assert code == 0, words


async def works(program: Program) -> bool:
    """Tell whether a call goes through."""
    result = await program.call("guarded", "echo", {"n": 1})
    return not result.get("isError") and json.loads(text_of(result)) == {"n": 1}


async def works_soon(program: Program) -> None:
    """Call until it goes through, each time that something has changed."""
    times = 0
    while not await works(program):
        times += 1
        await program.hears("notifications/tools/list_changed", times)


# --- the first login -------------------------------------------------------------------------------------


@pytest.mark.both_hosts
async def test_the_first_login_opens_a_browser_once_and_the_group_connects_by_itself(
    server: AuthServer, tmp_path: Path
) -> None:
    async with running(str(config(tmp_path, server.mcp_url)), env=SOMEBODY) as program:
        await program.initialize()
        await works_soon(program)

    assert len(server.requests_to("/authorize")) == 1


async def test_without_a_browser_the_reason_holds_the_command_and_nothing_waits(
    server: AuthServer, tmp_path: Path
) -> None:
    file = config(tmp_path, server.mcp_url)
    async with running(str(file), env=NOBODY) as program:
        await program.initialize()
        result = await program.call("guarded", "echo", {})
        listed = await program.request("tools/list")

    command = f"dynamic-mcp auth login guarded -c {file}"
    assert result["isError"]
    assert command in text_of(result)
    assert json.dumps(command)[1:-1] in json.dumps(listed)
    assert server.requests_to("/register") == []


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_a_login_to_a_modern_server_that_refuses_a_handshake_before_it_looks_at_the_token_is_offered(
    server: AuthServer, tmp_path: Path, version: str
) -> None:
    server.manners.is_modern_only = True
    call = {"name": "call_dynamic_tool", "arguments": {"group": "guarded", "name": "echo", "args": {}}}
    async with (
        running(str(config(tmp_path, server.mcp_url)), env=NOBODY) as program,
        connected(program, version) as peer,
    ):
        await peer.ask("tools/call", call)

    assert len(server.requests_to("/authorize")) == 1


@pytest.mark.parametrize("open_browser", ["auto", "never"])
async def test_the_config_decides_whether_a_browser_may_open(
    server: AuthServer, tmp_path: Path, open_browser: str
) -> None:
    file = config(tmp_path, server.mcp_url, settings={"open_browser": open_browser})
    async with running(str(file), env=SOMEBODY) as program:
        await program.initialize()
        await program.call("guarded", "echo", {})
        if open_browser == "auto":
            await server.wait_for_request("/authorize")

    assert bool(server.requests_to("/authorize")) == (open_browser == "auto")


async def test_a_client_that_takes_links_is_offered_one_and_the_call_goes_on(
    server: AuthServer, tmp_path: Path
) -> None:
    async with running(str(config(tmp_path, server.mcp_url)), env=SOMEBODY) as program:
        await program.initialize(capabilities=TAKES_LINKS)
        call = asyncio.create_task(program.call("guarded", "echo", {"n": 2}))
        asked = await program.hears("elicitation/create")
        assert server.requests_to("/authorize") == []
        assert asked["params"]["mode"] == "url"
        async with web_client(follow_redirects=True) as browser:
            await browser.get(asked["params"]["url"])
        program.reply(asked, {"action": "accept"})

        assert json.loads(text_of(await call)) == {"n": 2}
        over = await program.hears("notifications/elicitation/complete")
        assert over["params"]["elicitationId"] == asked["params"]["elicitationId"]


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_a_call_goes_on_after_a_login_and_another_one_for_more_scope(
    server: AuthServer, tmp_path: Path, version: str
) -> None:
    server.manners.scope_of_calls = "admin"
    call = {"name": "call_dynamic_tool", "arguments": {"group": "guarded", "name": "echo", "args": {"n": 2}}}
    async with (
        running(str(config(tmp_path, server.mcp_url)), env=NOBODY) as program,
        connected(program, version) as peer,
    ):
        answer = await peer.ask("tools/call", call)

    assert json.loads(text_of(answer["result"])) == {"n": 2}
    asked = [set(request.query["scope"].split()) for request in server.requests_to("/authorize")]
    assert asked == [{"tools"}, {"tools", "admin"}]


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_a_server_that_rejects_every_token_asks_for_no_more_than_two_logins(
    server: AuthServer, tmp_path: Path, version: str
) -> None:
    server.manners.refuses_all_tokens = True
    call = {"name": "call_dynamic_tool", "arguments": {"group": "guarded", "name": "echo", "args": {}}}
    async with (
        running(str(config(tmp_path, server.mcp_url)), env=NOBODY) as program,
        connected(program, version) as peer,
    ):
        answer = await peer.ask("tools/call", call)

    assert answer["result"]["isError"]
    assert len(server.requests_to("/authorize")) == 2


async def test_a_client_that_declines_gets_the_command_and_is_not_asked_again(
    server: AuthServer, tmp_path: Path
) -> None:
    async with running(str(config(tmp_path, server.mcp_url)), env=NOBODY) as program:
        await program.initialize(capabilities=TAKES_LINKS)
        program.answers["elicitation/create"] = b'{"action":"decline"}'
        for _ in range(2):
            assert "auth login guarded" in text_of(await program.call("guarded", "echo", {}))

        assert len(program.heard("elicitation/create")) == 1


async def test_a_headless_login_takes_the_pasted_address_and_a_running_proxy_picks_it_up(
    server: AuthServer, tmp_path: Path
) -> None:
    file = config(tmp_path, server.mcp_url)
    async with running(str(file), env=NOBODY) as program:
        await program.initialize()
        assert not await works(program)

        process = await own_process.start(
            *("auth", "login", "guarded", "-c", str(file)), stderr=DEVNULL, env={**os.environ, **NOBODY}
        )
        assert process.stdin is not None
        assert process.stdout is not None
        link = (await process.stdout.readline()).decode().strip()
        async with web_client() as elsewhere:
            redirect = (await elsewhere.get(link)).headers["location"]
        process.stdin.write(f"nonsense\n{redirect}\n".encode())
        assert await process.wait() == 0

        await works_soon(program)


async def test_a_hostile_server_opens_nothing_and_the_reason_says_why(server: AuthServer, tmp_path: Path) -> None:
    server.manners.metadata = {"authorization_endpoint": "https://a.test/$(touch canary)"}
    file = config(tmp_path, server.mcp_url)
    async with running(str(file), env=SOMEBODY, cwd=tmp_path) as program:
        await program.initialize()
        await server.wait_for_request("/.well-known/oauth-authorization-server")
        text = ""
        async with asyncio.timeout(BOUND_S):
            while "authorization_endpoint" not in text:
                text = text_of(await program.call("guarded", "echo", {}))
                await asyncio.sleep(0.1)
    code, _, words = await auth("login", "guarded", "-c", str(file), env=SOMEBODY)

    assert code == 5
    assert "authorization_endpoint" in words
    assert not (tmp_path / "canary").exists()
    assert server.requests_to("/register") == []


# --- afterwards ------------------------------------------------------------------------------------------


async def test_a_restart_with_an_expired_token_renews_it_and_opens_no_browser(
    server: AuthServer, tmp_path: Path
) -> None:
    server.manners.expires_in = 1
    file = config(tmp_path, server.mcp_url)
    await logged_in(file)
    server.expire()
    async with running(str(file), env=SOMEBODY) as program:
        await program.initialize()
        assert await works(program)

    assert server.count_refreshes() >= 1
    assert len(server.requests_to("/authorize")) == 1


async def test_a_token_that_expires_in_mid_session_is_renewed_once_and_the_call_repeated_once(
    server: AuthServer, tmp_path: Path
) -> None:
    file = config(tmp_path, server.mcp_url)
    await logged_in(file)
    async with running(str(file), env=NOBODY) as program:
        await program.initialize()
        assert await works(program)
        server.expire()
        posts = len(server.requests_to("/mcp"))

        assert await works(program)

    assert server.count_refreshes() == 1
    calls = [request for request in server.requests_to("/mcp")[posts:] if b"tools/call" in request.body]
    assert len(calls) == 2


async def test_a_revoked_login_is_said_with_the_command_and_another_login_heals_it(
    server: AuthServer, tmp_path: Path
) -> None:
    file = config(tmp_path, server.mcp_url)
    await logged_in(file)
    async with running(str(file), env=NOBODY) as program:
        await program.initialize()
        assert await works(program)
        server.revoke_all()

        text = text_of(await program.call("guarded", "echo", {}))
        assert "dynamic-mcp auth login guarded" in text

        await logged_in(file)
        await works_soon(program)
    assert server.count_refreshes() == 1


async def test_two_proxies_that_renew_at_once_both_go_on(server: AuthServer, tmp_path: Path) -> None:
    server.manners.token_delay_s = 0.2
    file = config(tmp_path, server.mcp_url)
    await logged_in(file)
    async with running(str(file), env=NOBODY) as one, running(str(file), env=NOBODY) as other:
        for program in (one, other):
            await program.initialize()
            assert await works(program)
        server.expire()
        assert all(await asyncio.gather(works(one), works(other)))
    assert server.count_refreshes() == 1


async def test_a_server_that_restarts_in_mid_session_needs_no_login(server: AuthServer, tmp_path: Path) -> None:
    file = config(tmp_path, server.mcp_url)
    await logged_in(file)
    async with running(str(file), env=NOBODY) as program:
        await program.initialize()
        assert await works(program)
        await server.__aexit__()
        assert not await works(program)
        await server.__aenter__()
        server.expire()

        await works_soon(program)
    assert server.count_refreshes() == 1
    assert len(server.requests_to("/authorize")) == 1


async def test_a_call_that_wants_more_scope_steps_up_and_goes_on(server: AuthServer, tmp_path: Path) -> None:
    file = config(tmp_path, server.mcp_url)
    await logged_in(file)
    async with running(str(file), env=NOBODY) as program:
        await program.initialize(capabilities=TAKES_LINKS)
        assert await works(program)
        server.manners.scope = "tools admin"

        call = asyncio.create_task(program.call("guarded", "echo", {"n": 3}))
        asked = await program.hears("elicitation/create")
        async with web_client(follow_redirects=True) as browser:
            await browser.get(asked["params"]["url"])
        program.reply(asked, {"action": "accept"})

        assert json.loads(text_of(await call)) == {"n": 3}
    assert server.requests_to("/authorize")[-1].query["scope"] == "tools admin"


async def test_a_header_in_the_config_goes_before_every_login(server: AuthServer, tmp_path: Path) -> None:
    token = server.issue()["access_token"]
    file = config(tmp_path, server.mcp_url, headers={"Authorization": f"Bearer {token}"})
    async with running(str(file), env=SOMEBODY) as program:
        await program.initialize()
        assert await works(program)

    assert [request.path for request in server.requests if request.path != "/mcp"] == []


async def test_client_credentials_need_no_person(server: AuthServer, tmp_path: Path) -> None:
    server.clients["robot"] = {"client_secret": "s"}
    oauth = {"client_id": "robot", "client_secret": "${SECRET}", "grant": "client_credentials", "scopes": ["tools"]}
    file = config(tmp_path, server.mcp_url, oauth=oauth)
    async with running(str(file), env={**NOBODY, "SECRET": "s"}) as program:
        await program.initialize()
        assert await works(program)
        server.expire()
        assert await works(program)

    hello = json.loads(server.requests_to("/mcp")[0].body)
    assert "io.modelcontextprotocol/oauth-client-credentials" in hello["params"]["capabilities"]["extensions"]


async def test_an_assertion_in_a_file_needs_no_person_and_status_tells_so(server: AuthServer, tmp_path: Path) -> None:
    server.clients["robot"], server.assertions = {}, {"jwt-1"}
    (tmp_path / "token.jwt").write_text("jwt-1\n")
    oauth = {"client_id": "robot", "grant": "jwt_bearer", "assertion_file": "token.jwt", "scopes": ["tools"]}
    file = config(tmp_path, server.mcp_url, oauth=oauth)
    async with running(str(file), env=NOBODY) as program:
        await program.initialize()
        assert await works(program)

    code, out, _ = await auth("status", "guarded", "-c", str(file), "--json")
    assert (code, json.loads(out)[0]["state"]) == (0, "logs in by itself")


# --- the commands ----------------------------------------------------------------------------------------


async def test_status_and_logout_tell_and_do_what_they_say(server: AuthServer, tmp_path: Path) -> None:
    file = config(tmp_path, server.mcp_url)
    code, out, _ = await auth("status", "guarded", "-c", str(file), "--json")
    assert (code, json.loads(out)[0]["state"]) == (4, "not logged in")

    await logged_in(file)
    code, out, _ = await auth("status", "-c", str(file), "--json")
    (row,) = json.loads(out)
    assert code == 0
    assert (row["state"], row["issuer"], row["scope"]) == ("logged in", server.url, "tools")
    assert "access-" not in out

    code, _, words = await auth("logout", "guarded", "-c", str(file))
    assert (code, "logged out" in words) == (0, True)
    assert {request.form["token_type_hint"] for request in server.requests_to("/revoke")} == {
        "access_token",
        "refresh_token",
    }
    assert (await auth("status", "guarded", "-c", str(file)))[0] == 4


async def test_where_no_client_can_be_had_a_token_is_asked_for_and_tried(server: AuthServer, tmp_path: Path) -> None:
    server.manners.registers = False
    server.manners.expires_in = None
    file = config(tmp_path, server.mcp_url)

    code, _, words = await auth("login", "guarded", "-c", str(file), stdin=b"wrong\n")
    assert code == 5
    assert "does not accept" in words
    token = server.issue()["access_token"]
    code, _, words = await auth("login", "guarded", "-c", str(file), stdin=f"{token}\n".encode())
    assert code == 0, words
    assert token not in words

    async with running(str(file), env=NOBODY) as program:
        await program.initialize()
        assert await works(program)


async def test_a_server_that_asks_for_no_login_gets_none(server: AuthServer, tmp_path: Path) -> None:
    server.manners.is_open = True
    for path in ("/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-authorization-server", "/register"):
        server.remove(path)

    code, _, words = await auth("login", "guarded", "-c", str(config(tmp_path, server.mcp_url)))

    assert (code, "needs no login" in words) == (0, True)


@pytest.mark.parametrize(
    ("args", "code"), [(("login", "other"), 2), (("login", "guarded", "-c", "none.json"), 2), (("bogus",), 2)]
)
async def test_a_wrong_command_line_is_said(tmp_path: Path, args: tuple[str, ...], code: int) -> None:
    file = config(tmp_path, "http://127.0.0.1:9/mcp")
    more = () if "-c" in args or args == ("bogus",) else ("-c", str(file))
    assert (await auth(*args, *more))[0] == code


async def test_an_unreachable_server_is_named(tmp_path: Path) -> None:
    code, _, words = await auth("login", "guarded", "-c", str(config(tmp_path, "http://127.0.0.1:9/mcp")))

    assert code == 5
    assert "guarded" in words


@pytest.mark.both_hosts
async def test_secrets_are_in_no_log_no_command_line_and_no_environment(server: AuthServer, tmp_path: Path) -> None:
    file = config(tmp_path, server.mcp_url)
    await logged_in(file)
    document = json.loads(file.read_text())
    document["mcpServers"]["other"] = {
        "command": sys.executable,
        "args": [str(Path(__file__).parents[1] / "upstreams" / "full.py")],
        "inherit_env": "all",
    }
    file.write_text(json.dumps(document))
    async with running(str(file), env={**NOBODY, "DYNAMIC_MCP_LOG": "debug"}) as program:
        await program.initialize()
        assert await works(program)
        server.expire()
        assert await works(program)
        seen = await asyncio.to_thread(_processes)
    seen += await program.stderr()

    assert "full.py" in seen
    assert "access-" not in seen
    assert "refresh-" not in seen


def _processes() -> str:
    """Return the command lines and environments of our own children, where the system shows them."""
    if sys.platform != "linux":
        return "full.py"
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes()
            if b"dynamic_mcp" in line or b"full.py" in line:
                found += [line.decode(), (folder / "environ").read_bytes().decode("utf-8", "replace")]
        except OSError:
            continue
    return "\n".join(found)


# --- the SDK's own server --------------------------------------------------------------------------------


@pytest.mark.full
async def test_the_sdks_own_server_with_its_auth_takes_the_whole_journey(tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "upstreams" / "sdk_auth_server.py"
    async with started(sys.executable, str(script), env=dict(os.environ), terminate=True) as sdk:
        said = json.loads(await sdk.line(lambda line: True))
        assert urlsplit(said["url"]).port
        file = config(tmp_path, said["url"])
        async with running(str(file), env=SOMEBODY) as program:
            await program.initialize()
            await works_soon(program)
            for _ in range(3):  # its tokens live for a second
                await asyncio.sleep(0.6)
                assert await works(program)
        async with running(str(file), env=NOBODY) as program:
            await program.initialize()
            assert await works(program)

"""Credentials: renewed in time, and only once however many use them; if that fails, a login is needed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as with_fields

from dynamic_mcp.errors import LoginNeeded, Unreachable
from dynamic_mcp.identity import Principal
from dynamic_mcp.oauth.credentials import Token
from dynamic_mcp.oauth.store import LoginStore
from tests.oauth.parts import COMMAND, bearer, issue_login, refusal, remote, store_login
from tests.upstreams.auth_server import Answer, AuthServer
from tests.windows import home_variables

ROOT = Path(__file__).parents[2]


async def test_without_a_login_nothing_is_sent_and_a_refusal_names_the_command(
    server: AuthServer, tmp_path: Path
) -> None:
    credentials = bearer(remote(server.mcp_url), tmp_path)

    assert await credentials.get_header() is None
    with pytest.raises(LoginNeeded) as raised:
        await credentials.handle_challenge(refusal(None))
    assert COMMAND in str(raised.value)
    assert not raised.value.is_done()


@pytest.mark.parametrize(
    ("metadata", "is_token"),
    [
        ({"authorization_servers": ["https://login.example.com"]}, False),
        ({"authorization_servers": []}, True),
        ({"resource": "x"}, True),
        (None, True),
    ],
)
async def test_a_server_that_names_nowhere_to_log_in_is_given_a_token(
    server: AuthServer, tmp_path: Path, metadata: dict[str, object] | None, *, is_token: bool
) -> None:
    url = f"{server.url}/.well-known/oauth-protected-resource/mcp"
    if metadata is None:
        server.remove("/.well-known/oauth-protected-resource/mcp")
    else:
        server.answer("/.well-known/oauth-protected-resource/mcp", metadata)

    with pytest.raises(LoginNeeded) as raised:
        await bearer(remote(server.mcp_url), tmp_path).handle_challenge(
            refusal(None, f'Bearer resource_metadata="{url}"')
        )

    assert ("needs a token" in raised.value.message) is is_token
    assert ("--header 'Authorization: Bearer ${TOKEN}'" in raised.value.hint) is is_token
    assert COMMAND in raised.value.hint


async def test_a_server_whose_login_the_config_names_is_not_said_to_want_a_token(
    server: AuthServer, tmp_path: Path
) -> None:
    with pytest.raises(LoginNeeded) as raised:
        await bearer(remote(server.mcp_url, client_id="ours"), tmp_path).handle_challenge(refusal(None))
    assert raised.value.reason == "needs a login"


async def test_a_valid_token_is_sent_without_a_renewal(server: AuthServer, tmp_path: Path) -> None:
    config = remote(server.mcp_url)
    login = issue_login(server)
    store_login(tmp_path, config, login)

    assert login.token is not None
    assert await bearer(config, tmp_path).get_header() == f"Bearer {login.token.access}"
    assert server.requests == []


async def test_an_expired_token_is_renewed_with_the_resource_and_the_new_refresh_token_is_kept(
    server: AuthServer, tmp_path: Path
) -> None:
    config = remote(server.mcp_url)
    store = store_login(tmp_path, config, issue_login(server, age_s=4000))

    header = await bearer(config, tmp_path).get_header()

    kept = store.load()
    assert kept is not None
    assert kept.token is not None
    assert header == f"Bearer {kept.token.access}"
    (asked,) = server.requests_to("/token")
    assert asked.form["resource"] == server.mcp_url
    assert kept.token.refresh != asked.form["refresh_token"]
    assert await bearer(config, tmp_path).get_header() == header  # and it is good for the next start


async def test_five_minutes_before_it_expires_a_token_is_renewed_in_the_background(
    server: AuthServer, tmp_path: Path
) -> None:
    config = remote(server.mcp_url)
    login = issue_login(server, age_s=3600 - 299)
    store_login(tmp_path, config, login)
    credentials = bearer(config, tmp_path)

    assert login.token is not None
    assert await credentials.get_header() == f"Bearer {login.token.access}"
    await credentials.close()
    assert server.count_refreshes() == 1
    assert await credentials.get_header() != f"Bearer {login.token.access}"


async def test_more_than_five_minutes_before_it_expires_a_token_is_not_renewed(
    server: AuthServer, tmp_path: Path
) -> None:
    config = remote(server.mcp_url)
    store_login(tmp_path, config, issue_login(server, age_s=3600 - 301))
    credentials = bearer(config, tmp_path)

    await credentials.get_header()
    await credentials.close()
    assert server.count_refreshes() == 0


async def test_many_requests_share_one_renewal(server: AuthServer, tmp_path: Path) -> None:
    config = remote(server.mcp_url)
    store_login(tmp_path, config, issue_login(server, age_s=4000))
    credentials = bearer(config, tmp_path)

    headers = await asyncio.gather(*(credentials.get_header() for _ in range(20)))

    assert len(set(headers)) == 1
    assert server.count_refreshes() == 1


async def test_cancelling_a_caller_does_not_end_the_renewal(server: AuthServer, tmp_path: Path) -> None:
    server.manners.token_delay_s = 0.2
    config = remote(server.mcp_url)
    store = store_login(tmp_path, config, issue_login(server, age_s=4000))
    credentials = bearer(config, tmp_path)
    caller = asyncio.create_task(credentials.get_header())
    await server.wait_for_request("/token")

    caller.cancel()
    await credentials.close()

    kept = store.load()
    assert kept is not None
    assert kept.token is not None
    assert not kept.token.is_expired(time.time())


async def test_a_token_that_is_rejected_before_it_expires_is_renewed_once(server: AuthServer, tmp_path: Path) -> None:
    config = remote(server.mcp_url)
    store_login(tmp_path, config, issue_login(server))
    credentials = bearer(config, tmp_path)
    sent = await credentials.get_header()

    assert all(await asyncio.gather(*(credentials.handle_challenge(refusal(sent)) for _ in range(5))))
    assert server.count_refreshes() == 1
    assert await credentials.get_header() != sent


async def test_if_the_new_token_is_rejected_too_a_login_is_needed(server: AuthServer, tmp_path: Path) -> None:
    config = remote(server.mcp_url)
    store_login(tmp_path, config, issue_login(server))
    credentials = bearer(config, tmp_path)
    assert await credentials.handle_challenge(refusal(await credentials.get_header()))

    with pytest.raises(LoginNeeded):
        await credentials.handle_challenge(refusal(await credentials.get_header()))
    assert server.count_refreshes() == 1


async def test_a_revoked_refresh_token_is_used_once_and_then_a_login_is_needed(
    server: AuthServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = remote(server.mcp_url)
    store = store_login(tmp_path, config, issue_login(server))
    server.revoke_all()
    credentials = bearer(config, tmp_path)
    sent = await credentials.get_header()

    for _ in range(3):
        with pytest.raises(LoginNeeded):
            await credentials.handle_challenge(refusal(sent))
    assert server.count_refreshes() == 1
    kept = store.load()
    assert kept is not None
    assert kept.token is not None
    assert kept.token.refresh is None
    assert "SECRET" not in caplog.text
    assert "invalid_grant" in caplog.text


async def test_an_unavailable_authorization_server_is_no_reason_to_log_in_again(
    server: AuthServer, tmp_path: Path
) -> None:
    server.manners.overrides["/token"] = lambda request: Answer(503, {})
    config = remote(server.mcp_url)
    store = store_login(tmp_path, config, issue_login(server, age_s=4000))
    credentials = bearer(config, tmp_path)

    with pytest.raises(Unreachable, match="HTTP 503"):
        await credentials.get_header()

    server.manners.overrides.clear()
    assert await credentials.get_header() is not None
    assert store.load() is not None


async def test_a_failed_renewal_of_a_valid_token_stops_nothing(server: AuthServer, tmp_path: Path) -> None:
    server.manners.overrides["/token"] = lambda request: Answer(503, {})
    config = remote(server.mcp_url)
    store_login(tmp_path, config, issue_login(server, age_s=3600 - 60))
    credentials = bearer(config, tmp_path)

    for _ in range(3):
        assert await credentials.get_header() is not None
        await credentials.close()
    assert server.count_refreshes() == 1


async def test_a_token_without_expiry_and_refresh_token_is_used_until_it_is_rejected(
    server: AuthServer, tmp_path: Path
) -> None:
    config = remote(server.mcp_url)
    login = issue_login(server)
    assert login.token is not None
    store_login(tmp_path, config, replace(login, token=Token(login.token.access, time.time())))
    credentials = bearer(config, tmp_path)

    sent = await credentials.get_header()
    with pytest.raises(LoginNeeded):
        await credentials.handle_challenge(refusal(sent))
    assert server.count_refreshes() == 0


# --- other processes -------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def user(url: str, folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a process that uses the login, until it is ready."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.oauth.token_user", url, str(folder)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert (await process.stdout.readline()).strip() == b"ready"
        yield process
    finally:
        process.stdin.close()
        await process.wait()


async def says(process: asyncio.subprocess.Process, word: str) -> str:
    """Give a process a line and return the one it answers."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{word}\n".encode())
    return (await process.stdout.readline()).decode().strip()


@pytest.mark.parametrize("age_s", [0, 4000])
async def test_two_processes_with_rotating_tokens_renew_once_and_both_continue(
    server: AuthServer, tmp_path: Path, age_s: float
) -> None:
    server.manners.token_delay_s = 0.1
    config = remote(server.mcp_url)
    login = issue_login(server, age_s=age_s)
    store_login(tmp_path, config, login)
    assert login.token is not None
    word = "use" if age_s else f"refused Bearer {login.token.access}"
    async with user(server.mcp_url, tmp_path) as one, user(server.mcp_url, tmp_path) as other:
        headers = await asyncio.gather(says(one, word), says(other, word))
        again = await asyncio.gather(says(one, "use"), says(other, "use"))

    assert len({*headers, *again}) == 1
    assert headers[0] not in ("", f"Bearer {login.token.access}")
    assert server.count_refreshes() == 1


async def test_a_login_of_another_process_counts_at_once(server: AuthServer, tmp_path: Path) -> None:
    config = remote(server.mcp_url)
    credentials = bearer(config, tmp_path)
    assert await credentials.get_header() is None
    with pytest.raises(LoginNeeded) as raised:
        await credentials.handle_challenge(refusal(None))

    store_login(tmp_path, config, issue_login(server))

    assert raised.value.is_done()
    assert await credentials.get_header() is not None


async def test_a_process_that_is_killed_while_it_holds_the_lock_stops_nobody(
    server: AuthServer, tmp_path: Path
) -> None:
    server.manners.token_delay_s = 30
    config = remote(server.mcp_url)
    store_login(tmp_path, config, issue_login(server, age_s=4000))
    async with user(server.mcp_url, tmp_path) as process:
        assert process.stdin is not None
        process.stdin.write(b"use\n")
        await server.wait_for_request("/token")
        process.kill()
        await process.wait()

    server.manners.token_delay_s = 0
    assert await bearer(config, tmp_path).get_header() is not None


# --- tokens that cannot be saved or read ------------------------------------------------------------------------


@pytest.mark.posix_only("a path below a file is one that does not exist on Windows, as after a logout")
async def test_a_token_that_cannot_be_saved_is_used_from_memory_with_a_warning(
    server: AuthServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = remote(server.mcp_url)
    store = store_login(tmp_path / "logins", config, issue_login(server, age_s=4000))
    credentials = bearer(config, tmp_path / "logins")
    await credentials.load_login()
    (tmp_path / "logins").rename(tmp_path / "moved")
    (tmp_path / "logins").write_text("a file where the folder was")

    header = await credentials.get_header()

    assert header is not None
    assert await credentials.get_header() == header
    assert server.count_refreshes() == 1
    assert "is not saved" in caplog.text
    assert store.stamp() is None


async def test_a_token_of_the_predecessor_is_taken_over_and_renewed_as_the_configs_client(
    server: AuthServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in home_variables(tmp_path).items():
        monkeypatch.setenv(name, value)
    given = server.issue("mine")
    old = tmp_path / ".dynamic-mcp" / "oauth-servers" / "up.json"
    old.parent.mkdir(parents=True)
    kept = {
        "access_token": given["access_token"],
        "refresh_token": given["refresh_token"],
        "expires_at": "2020-01-01T00:00:00Z",
    }
    old.write_text(json.dumps(kept))
    config = remote(server.mcp_url, client_id="mine")

    header = await bearer(config, tmp_path / "logins").get_header()

    assert header is not None
    assert server.count_refreshes() == 1
    assert await bearer(config, tmp_path / "logins").get_header() == header
    assert json.loads(old.read_text()) == kept
    assert LoginStore(tmp_path / "logins", config).load() is not None


async def test_a_token_of_the_predecessor_goes_to_no_other_authorization_server(
    server: AuthServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in home_variables(tmp_path).items():
        monkeypatch.setenv(name, value)
    old = tmp_path / ".dynamic-mcp" / "oauth-servers" / "up.json"
    old.parent.mkdir(parents=True)
    old.write_text('{"access_token": "a", "refresh_token": "r", "expires_at": "2020-01-01T00:00:00Z"}')
    elsewhere = f"http://localhost:{server.port}"
    server.manners.prm = {"authorization_servers": [elsewhere]}
    server.manners.metadata = {"issuer": elsewhere}

    with pytest.raises(LoginNeeded):
        await bearer(remote(server.mcp_url, client_id="mine"), tmp_path / "logins").get_header()
    assert server.requests_to("/token") == []


async def test_a_token_of_the_predecessor_is_the_local_users_alone(
    server: AuthServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in home_variables(tmp_path).items():
        monkeypatch.setenv(name, value)
    old = tmp_path / ".dynamic-mcp" / "oauth-servers" / "up.json"
    old.parent.mkdir(parents=True)
    old.write_text('{"access_token": "a"}')
    config = remote(server.mcp_url, client_id="mine")
    of_ann = with_fields(config, login_of=Principal("token", "ann"))

    headers = [await bearer(each, tmp_path / "logins").get_header() for each in (config, of_ann)]

    assert headers == ["Bearer a", None]

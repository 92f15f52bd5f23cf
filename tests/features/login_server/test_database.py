"""What is kept: over restarts, for all workers at once, within bounds, and for nobody else to read."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import sqlite3
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from dynamic_mcp.features.login_server import grants, store
from dynamic_mcp.features.login_server.database import Database, DatabaseError, file_for
from dynamic_mcp.identity import Authentication
from tests.features.login_server.parties import Browser, Clock, Json, authorize_url, error_of, json_of, open_site
from tests.program import BOUND_S
from tests.windows import is_private

ROOT = Path(__file__).parents[4]


async def test_a_login_outlives_the_server(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        tokens = await site.log_in(scope="files")
        somebody = await site.authenticate(tokens["access_token"])
    async with open_site(tmp_path) as site:
        assert await site.authenticate(tokens["access_token"]) == somebody
        assert (await site.refresh(tokens)).status == 200


async def test_a_login_that_has_begun_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        id = await site.client()
        browser = Browser(site)
        await browser.open(authorize_url(id))
    async with open_site(tmp_path) as site:
        browser.site = site
        assert (await browser.submit("allow")).status == 303


async def test_workers_share_logins_codes_and_revocations(tmp_path: Path) -> None:
    clock = Clock()
    async with open_site(tmp_path, clock=clock) as one, open_site(tmp_path, clock=clock) as other:
        id = await one.client()
        code = await other.code("ann", id)
        tokens = {**json_of(await one.redeem(id, code)), "client_id": id}
        assert await other.is_good(tokens["access_token"])
        assert error_of(await other.redeem(id, code)) == "invalid_grant"
        clock.advance(6)
        assert not await one.is_good(tokens["access_token"])


async def test_a_stream_ends_that_another_worker_has_revoked(tmp_path: Path) -> None:
    clock = Clock()
    async with open_site(tmp_path, clock=clock) as one, open_site(tmp_path, clock=clock) as other:
        tokens = await one.log_in()
        somebody = await one.authenticate(tokens["access_token"])
        assert isinstance(somebody, Authentication)
        form = {"token": tokens["refresh_token"], "client_id": tokens["client_id"]}
        assert (await other.post_form("/revoke", form)).status == 200
        clock.advance(6)
        async with asyncio.timeout(BOUND_S):
            while one.provider.is_valid(somebody):  # noqa: ASYNC110 - nothing tells when it was looked up
                await asyncio.sleep(0)


async def test_workers_that_start_at_once_sign_with_one_key(tmp_path: Path) -> None:
    async with open_site(tmp_path) as one, open_site(tmp_path) as other:
        published = await asyncio.gather(*(site.ask("GET", "/.well-known/jwks.json") for site in (one, other)))
        assert published[0].body == published[1].body
        assert len(json_of(published[0])["keys"]) == 1


REDEEM = """
import asyncio, json, sys
from pathlib import Path
from tests.features.login_server.parties import Clock, open_site

async def main() -> None:
    folder, id, code = sys.argv[1:]
    async with open_site(Path(folder)) as site:
        answer = await site.redeem(id, code)
        print(answer.status)

asyncio.run(main())
"""


async def test_of_two_processes_one_gets_the_tokens_of_a_code(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        id = await site.client()
        code = await site.code("ann", id)
        command = (sys.executable, "-c", REDEEM, str(tmp_path), id, code)
        processes = [
            await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE) for _ in range(2)
        ]
        async with asyncio.timeout(BOUND_S):
            answers = [(await process.communicate())[0].strip() for process in processes]
        assert sorted(answers) == [b"200", b"400"]


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
async def test_nobody_else_can_read_what_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    before = os.umask(0)
    try:
        async with open_site(folder) as site:
            await site.log_in()
            are_private = [is_private(each) for each in folder.iterdir()]
    finally:
        os.umask(before)
    assert all(are_private)
    assert is_private(folder)


async def test_neither_codes_nor_tokens_of_clients_are_kept_as_they_are(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        first = await site.log_in()
        second = {**first, **json_of(await site.refresh(first))}
        code = await site.code("ann", first["client_id"])
        for secret in (*_tokens_of(first), *_tokens_of(second), code):
            assert secret.encode() not in _content(tmp_path)
        assert (await site.refresh(first)).body == json.dumps(_answer_of(second), separators=(",", ":")).encode()


async def test_nobody_who_can_only_read_the_file_can_make_a_refresh_token_that_counts(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        tokens = await site.log_in()
        family, secret, number = _row(tmp_path, "SELECT id, secret, number FROM families")
        body = f"{family}.{number}.{'A' * 43}"
        forged = f"{body}.{hmac.new(secret, body.encode(), sha256).hexdigest()}"
        assert error_of(await site.refresh({**tokens, "refresh_token": forged})) == "invalid_grant"


async def test_an_answer_is_deleted_once_it_is_not_given_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grants, "GRACE_S", -1.0)
    async with open_site(tmp_path) as site:
        await site.refresh(await site.log_in())
        async with asyncio.timeout(BOUND_S):
            while _row(tmp_path, "SELECT answer FROM families") != (None,):  # noqa: ASYNC110 - nothing tells when
                await asyncio.sleep(0)


def _row(folder: Path, query: str) -> tuple[Any, ...]:
    with contextlib.closing(sqlite3.connect(folder / "logins.sqlite")) as connection:
        found: tuple[Any, ...] = connection.execute(query).fetchone()
    return found


def _tokens_of(tokens: Json) -> tuple[str, str]:
    return tokens["access_token"], tokens["refresh_token"]


def _answer_of(tokens: Json) -> Json:
    return {name: value for name, value in tokens.items() if name != "client_id"}


def _content(folder: Path) -> bytes:
    return b"".join(each.read_bytes() for each in _files(folder))


def _files(folder: Path) -> list[Path]:
    return [*folder.iterdir()]


@pytest.mark.parametrize("content", [b"", b"no database at all" * 500, b"SQLite format 3\0" + b"\xff" * 4096])
async def test_a_file_that_is_none_of_ours_is_set_aside(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "logins.sqlite").write_bytes(content)
    async with open_site(tmp_path) as site:
        assert await site.is_good((await site.log_in())["access_token"])
    assert content in [b"", (tmp_path / "logins.bad").read_bytes() if content else b""]


@pytest.mark.posix_only("links need a privilege on Windows")
async def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"")
    (tmp_path / "logins.sqlite").symlink_to(tmp_path / "other")
    async with open_site(tmp_path) as site:
        response = await site.register()
        assert (response.status, error_of(response)) == (503, "temporarily_unavailable")
    assert (tmp_path / "other").read_bytes() == b""


async def test_while_the_file_cannot_be_used_clients_are_told_to_come_again(tmp_path: Path) -> None:
    (tmp_path / "logins.sqlite").mkdir()
    async with open_site(tmp_path) as site:
        assert (await site.register()).status == 503
        assert (await Browser(site).open(authorize_url("x"))).status == 503
        assert (await site.redeem("a", "b")).status == 503
        (tmp_path / "logins.sqlite").rmdir()
        assert (await site.register()).status == 201


async def test_what_has_failed_leaves_nothing_behind(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.sqlite")

    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO revoked VALUES ('a', 1)")
        raise KeyError

    with pytest.raises(KeyError):
        await database.run(fail)
    assert await database.run(lambda connection: grants.revoked(connection, 0)) == frozenset()
    await database.close()
    with pytest.raises(DatabaseError):
        await database.run(lambda connection: None)


async def test_the_number_of_clients_is_bounded_and_those_in_use_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MAX_CLIENTS", 20)
    async with open_site(tmp_path) as site:
        used = await site.client()
        await site.log_in(client_id=used)
        flood = []
        for number in range(50):
            site.clock.advance(1)
            flood.append(json_of(await site.register(peer=f"1.1.{number}.1"))["client_id"])
        known = [(await Browser(site).open(authorize_url(id))).status == 200 for id in (used, *flood)]
        assert known == [True, *[False] * 31, *[True] * 19]


async def test_the_numbers_of_logins_and_requests_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grants, "MAX_PER_OWNER", 3)
    monkeypatch.setattr(store, "MAX_REQUESTS", 3)
    async with open_site(tmp_path) as site:
        id = await site.client()
        logins = []
        for _ in range(5):
            site.clock.advance(1)
            logins.append(await site.log_in(client_id=id))
        other = await site.log_in("bob", id)
        statuses = [(await site.refresh(each)).status for each in (*logins, other)]
        assert statuses == [400, 400, 200, 200, 200, 200]
        browsers = [Browser(site) for _ in range(5)]
        for browser in browsers:
            site.clock.advance(1)
            await browser.open(authorize_url(id))
        assert [(await browser.submit("allow")).status for browser in browsers] == [400, 400, 303, 303, 303]


def test_each_config_has_a_file_of_its_own(tmp_path: Path) -> None:
    assert file_for(tmp_path / "a.json") != file_for(tmp_path / "b.json")
    assert file_for(tmp_path / "a.json") == file_for(tmp_path / "a.json")

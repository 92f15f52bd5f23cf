"""What somebody tries who has, or has not, a code or a token that was given to somebody else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dynamic_mcp.face.auth.provider import CredentialDenial
from tests.features.login_server.parties import (
    CHALLENGE,
    error_of,
    header,
    json_of,
    open_site,
)

pytestmark = pytest.mark.usefixtures("kept")

EVIL = "https://evil.example"


# --- codes --------------------------------------------------------------------------------------------


async def test_a_code_that_is_used_twice_ends_what_it_gave(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        id = await site.client()
        code = await site.code("ann", id)
        tokens = json_of(await site.redeem(id, code))
        assert await site.is_good(tokens["access_token"])
        assert error_of(await site.redeem(id, code)) == "invalid_grant"
        assert not await site.is_good(tokens["access_token"])
        assert error_of(await site.refresh({**tokens, "client_id": id})) == "invalid_grant"


async def test_of_many_at_once_one_gets_the_tokens_of_a_code(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        id = await site.client()
        code = await site.code("ann", id)
        answers = await asyncio.gather(*(site.redeem(id, code) for _ in range(10)))
        assert sorted(each.status for each in answers) == [200, *[400] * 9]


async def test_a_code_counts_for_a_minute(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        id = await site.client()
        early, late = await site.code("ann", id), await site.code("ann", id)
        site.clock.advance(59)
        assert (await site.redeem(id, early)).status == 200
        site.clock.advance(2)
        assert error_of(await site.redeem(id, late)) == "invalid_grant"


async def test_a_code_is_worth_nothing_to_another_client_and_still_good_for_its_own(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        id, other = await site.client(), await site.client()
        code = await site.code("ann", id)
        assert error_of(await site.redeem(other, code)) == "invalid_grant"
        assert (await site.redeem(id, code)).status == 200


@pytest.mark.parametrize(
    "changes", [{"code_verifier": "w" * 43}, {"code_verifier": CHALLENGE}, {"redirect_uri": EVIL}]
)
async def test_who_has_only_the_code_gets_nothing_and_has_one_guess(tmp_path: Path, changes: dict[str, str]) -> None:
    async with open_site(tmp_path) as site:
        id = await site.client()
        code = await site.code("ann", id)
        assert error_of(await site.redeem(id, code, **changes)) == "invalid_grant"
        assert error_of(await site.redeem(id, code)) == "invalid_grant"


async def test_a_code_without_its_verifier_is_no_request(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        id = await site.client()
        code = await site.code("ann", id)
        form = {"grant_type": "authorization_code", "code": code, "client_id": id}
        assert error_of(await site.post_form("/token", form)) == "invalid_request"


async def test_whoever_has_a_secret_is_at_the_wrong_server(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        id = await site.client()
        code = await site.code("ann", id)
        answer = await site.redeem(id, code, client_secret="s")
        assert (answer.status, error_of(answer)) == (401, "invalid_client")


async def test_a_client_that_was_forgotten_is_told_to_register_again(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        answer = await site.redeem("unknown", "c")
        assert (answer.status, error_of(answer)) == (401, "invalid_client")


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "multipart/form-data; boundary=x", ""])
async def test_tokens_are_asked_for_by_forms_only(tmp_path: Path, kind: str) -> None:
    async with open_site(tmp_path) as site:
        response = await site.ask("POST", "/token", b"grant_type=refresh_token", content_type=kind)
        assert response.status == 415


async def test_answers_with_tokens_are_never_stored(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        id = await site.client()
        response = await site.redeem(id, await site.code("ann", id))
        assert header(response, "cache-control") == "no-store"


# --- refresh tokens -----------------------------------------------------------------------------------


async def test_a_client_that_did_not_get_the_answer_gets_it_again(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        tokens = await site.log_in()
        first = await site.refresh(tokens)
        site.clock.advance(29)
        assert (await site.refresh(tokens)).body == first.body
        assert (await site.refresh({**tokens, **json_of(first)})).status == 200


async def test_processes_of_a_client_that_refresh_at_once_all_get_the_same_tokens(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        tokens = await site.log_in()
        answers = await asyncio.gather(*(site.refresh(tokens) for _ in range(10)))
        assert len({each.body for each in answers}) == 1
        assert (await site.refresh({**tokens, **json_of(answers[0])})).status == 200


async def test_a_refresh_token_that_is_used_again_later_ends_the_login(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        stolen = await site.log_in()
        current = {**stolen, **json_of(await site.refresh(stolen))}
        assert await site.is_good(current["access_token"])
        site.clock.advance(31)
        assert error_of(await site.refresh(stolen)) == "invalid_grant"
        assert error_of(await site.refresh(current)) == "invalid_grant"
        assert not await site.is_good(current["access_token"])
        assert not await site.is_good(stolen["access_token"])


async def test_a_refresh_token_of_long_ago_ends_the_login_at_once(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        stolen = await site.log_in()
        second = {**stolen, **json_of(await site.refresh(stolen))}
        third = {**stolen, **json_of(await site.refresh(second))}
        assert error_of(await site.refresh(stolen)) == "invalid_grant"
        assert error_of(await site.refresh(third)) == "invalid_grant"


async def test_a_made_up_refresh_token_ends_nothing(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        tokens = await site.log_in()
        family, number, random, mac = tokens["refresh_token"].split(".")
        for guess in (
            f"{family}.1.{random}.{'0' * 64}",
            f"{family}.9.{random}.{mac}",
            f"{family}.0.{random}.{mac}",
            f"{family}.1.{random[::-1]}.{mac}",
            f"{family}.1.{mac}",
            family,
            f"{family}..",
            "ü",
            f"{family}.².",
        ):
            assert error_of(await site.refresh({**tokens, "refresh_token": guess})) == "invalid_grant"
        assert number == "1"
        assert (await site.refresh(tokens)).status == 200


async def test_a_refresh_token_is_worth_nothing_to_another_client(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        tokens = await site.log_in()
        other = await site.client()
        assert error_of(await site.refresh({**tokens, "client_id": other})) == "invalid_grant"
        assert (await site.refresh(tokens)).status == 200


# --- access tokens ------------------------------------------------------------------------------------


async def test_a_token_of_another_key_or_with_another_content_lets_nobody_in(tmp_path: Path) -> None:
    async with open_site(tmp_path / "a") as site, open_site(tmp_path / "b") as other:
        good, foreign = (await site.log_in())["access_token"], (await other.log_in("eve"))["access_token"]
        head, claims, signature = good.split(".")
        forged = [
            foreign,
            f"{head}.{foreign.split('.')[1]}.{signature}",
            f"{foreign.split('.')[0]}.{claims}.{signature}",
        ]
        forged += [
            f"{head}.{claims}.",
            f"{head}.{claims}",
            f"{head}.{claims}.{signature[:-4]}AAAA",
            "",
            "a.b.c",
            "..",
        ]
        for token in forged:
            assert not await site.is_good(token)
        assert await site.is_good(good)


async def test_an_unsigned_token_lets_nobody_in(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        claims = (await site.log_in())["access_token"].split(".")[1]
        for header_ in ("eyJhbGciOiJub25lIiwia2lkIjoiYSIsInR5cCI6ImF0K2p3dCJ9", "eyJhbGciOiJub25lIn0"):
            assert isinstance(await site.authenticate(f"{header_}.{claims}."), CredentialDenial)


async def test_a_token_that_has_expired_lets_nobody_in(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        token = (await site.log_in())["access_token"]
        site.clock.advance(3599)
        assert await site.is_good(token)
        site.clock.advance(1)
        assert not await site.is_good(token)


async def test_a_refresh_token_or_a_code_is_no_access_token(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        tokens = await site.log_in()
        assert not await site.is_good(tokens["refresh_token"])
        assert not await site.is_good(await site.code("ann", tokens["client_id"]))

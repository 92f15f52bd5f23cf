"""The token of a caller is exchanged at a real authorization server, cached, and got again when it is time."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dynamic_mcp.config.resolved import OAuth, Remote, TokenExchange
from dynamic_mcp.errors import TokenNeeded, Unreachable
from dynamic_mcp.identity import Principal
from dynamic_mcp.oauth.caller_tokens import CallerTokens
from dynamic_mcp.oauth.exchange import REFUSED_FOR_S, ExchangedCredentials, Exchanges
from tests.face.auth.jwt_parties import PUBLIC_URL, Clock
from tests.oauth.parts import refusal
from tests.oidc_provider import OPENID, TOKEN
from tests.upstreams.auth_server import Answer, Request
from tests.upstreams.exchange_issuer import CLIENT, EXCHANGE, SECRET, TYPES, ExchangeIssuer
from tests.upstreams.exchange_issuer import refusal as refused

SERVER = "https://tickets.example.com/mcp"


class Desk:
    """What exchanges the tokens of callers of one issuer, at a time that a test moves."""

    def __init__(self, issuer: ExchangeIssuer) -> None:
        self.issuer = issuer
        self.clock = Clock()
        self.tokens = CallerTokens(self.clock)
        self.exchanges = Exchanges(self.tokens, self.clock)

    def person(self, name: str) -> Principal:
        return Principal(self.issuer.issuer, name)

    def show(self, name: str, *, life_s: float = 600, **claims: Any) -> str:
        """Have a caller show a token, and return it."""
        token = self.issuer.token_of(name, life_s=life_s, **claims)
        self.tokens.record(self.person(name), token)
        return token

    def remote(self, name: str | None, exchange: TokenExchange | None = None, **oauth: Any) -> Remote:
        """Return the config of a server for a person."""
        own = {"issuer": self.issuer.issuer, "client_id": CLIENT, "client_secret": SECRET, **oauth}
        config = OAuth(**{"grant": "token_exchange", **own}, exchange=exchange or TokenExchange(audience="tickets"))
        person = None if name is None else self.person(name)
        return Remote(kind="http", url=SERVER, headers={}, oauth=config, login_of=person)

    def credentials(self, name: str | None, *args: Any, **oauth: Any) -> ExchangedCredentials:
        return self.exchanges.authorization("up", self.remote(name, *args, **oauth))

    @property
    def forms(self) -> list[dict[str, str]]:
        return [request.form for request in self.issuer.exchanges]


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async with ExchangeIssuer(PUBLIC_URL, "tickets", SERVER) as issuer:
        desk = Desk(issuer)
        yield desk
        desk.exchanges.close()
        desk.tokens.keep_only(())


def subject(desk: Desk, header: str) -> str:
    """Return whom a header with a new token is for."""
    return desk.issuer.issued[header.removeprefix("Bearer ")]


# --- the request -------------------------------------------------------------------------------------------


async def test_the_token_that_a_caller_has_shown_is_exchanged_for_one_for_the_server(desk: Desk) -> None:
    shown = desk.show("ann")

    header = await desk.credentials("ann", scopes=("read", "write")).get_header()

    assert subject(desk, header) == "ann"
    assert shown not in header
    (form,) = desk.forms
    assert form == {
        "grant_type": EXCHANGE,
        "subject_token": shown,
        "subject_token_type": f"{TYPES}access_token",
        "requested_token_type": f"{TYPES}access_token",
        "audience": "tickets",
        "scope": "read write",
        "client_id": CLIENT,
    }
    pair = desk.issuer.exchanges[0].headers["authorization"].removeprefix("Basic ")
    assert base64.b64decode(pair).decode() == f"{CLIENT}:{SECRET}"


async def test_without_an_audience_the_server_is_named_by_its_url(desk: Desk) -> None:
    desk.show("ann")

    await desk.credentials("ann", TokenExchange()).get_header()

    assert desk.forms[0]["resource"] == SERVER
    assert "audience" not in desk.forms[0]


async def test_the_types_of_both_tokens_and_the_resource_are_those_of_the_config(desk: Desk) -> None:
    desk.show("ann")
    config = TokenExchange(resource=SERVER, subject_token_type="jwt", requested_token_type="jwt")

    await desk.credentials("ann", config).get_header()

    types = [desk.forms[0][f"{name}_token_type"] for name in ("subject", "requested")]
    assert types == [f"{TYPES}jwt", f"{TYPES}jwt"]
    assert desk.forms[0]["resource"] == SERVER


async def test_an_endpoint_of_the_config_is_used_without_any_metadata(desk: Desk) -> None:
    desk.show("ann")
    config = TokenExchange(token_endpoint=f"{desk.issuer.issuer}{TOKEN}", audience="tickets")

    assert subject(desk, await desk.credentials("ann", config).get_header()) == "ann"

    assert desk.issuer.count(OPENID) == 0


async def test_the_token_of_an_actor_is_read_for_each_exchange(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "actor"
    config = TokenExchange(audience="tickets", actor_token_file=str(file))
    desk.show("ann")
    credentials = desk.credentials("ann", config)
    file.write_text(desk.issuer.mint("sts", sub="one") + "\n")
    sent = await credentials.get_header()
    file.write_text(desk.issuer.mint("sts", sub="two") + "\n")
    await credentials.handle_challenge(refusal(sent))
    file.unlink()

    with pytest.raises(Unreachable, match="actor"):
        await desk.credentials("ann", config, scopes=("other",)).get_header()

    assert [form["actor_token_type"] for form in desk.forms] == [f"{TYPES}jwt"] * 2
    assert len({form["actor_token"] for form in desk.forms}) == 2


async def test_metadata_is_fetched_once_for_all_callers(desk: Desk) -> None:
    names = [f"u-{number}" for number in range(8)]
    for name in names:
        desk.show(name)

    headers = await asyncio.gather(*(desk.credentials(name).get_header() for name in names))

    assert [subject(desk, header) for header in headers] == names
    assert desk.issuer.count(OPENID) == 1


async def test_all_who_wait_for_metadata_share_its_failure(desk: Desk) -> None:
    names = [f"u-{number}" for number in range(8)]
    for name in names:
        desk.show(name)
    desk.issuer.manners.metadata["issuer"] = "https://evil.example.com"

    waiting = (desk.credentials(name).get_header() for name in names)
    failures = await asyncio.gather(*waiting, return_exceptions=True)

    assert all(isinstance(each, Unreachable) for each in failures)
    assert desk.issuer.count(OPENID) == 1


# --- the cache ---------------------------------------------------------------------------------------------


async def test_many_calls_at_once_share_one_exchange_and_later_ones_its_token(desk: Desk) -> None:
    desk.show("ann")
    credentials = desk.credentials("ann")

    headers = {*await asyncio.gather(*(credentials.get_header() for _ in range(32)))}
    headers.add(await desk.credentials("ann").get_header())

    assert len(headers) == len(desk.forms) == 1


async def test_a_cancelled_call_does_not_end_the_exchange_that_others_wait_for(desk: Desk) -> None:
    desk.show("ann")
    desk.issuer.hold(TOKEN)
    credentials = desk.credentials("ann")
    first, second = (asyncio.create_task(credentials.get_header()) for _ in range(2))
    await desk.issuer.wait_for_request(TOKEN)
    first.cancel()

    desk.issuer.release(TOKEN)

    assert subject(desk, await second) == "ann"
    assert len(desk.forms) == 1


async def test_each_person_server_and_scope_has_a_token_of_its_own(desk: Desk) -> None:
    for name in ("ann", "bob"):
        desk.show(name)
    every = [
        desk.credentials("ann"),
        desk.credentials("bob"),
        desk.credentials("ann", scopes=("read",)),
        desk.credentials("ann", TokenExchange()),
        desk.exchanges.authorization("other", desk.remote("ann")),
    ]

    headers = [await each.get_header() for each in every]

    assert len({*headers}) == len(every)
    assert [subject(desk, header) for header in headers] == ["ann", "bob", "ann", "ann", "ann"]


async def test_a_token_that_is_about_to_expire_is_used_while_a_new_one_is_got(desk: Desk) -> None:
    desk.issuer.life_s = 100
    desk.show("ann", life_s=6000)
    credentials = desk.credentials("ann")
    first = await credentials.get_header()
    desk.issuer.hold(TOKEN)
    desk.clock.pass_s(60)

    assert await credentials.get_header() == first
    await desk.issuer.wait_for_request(TOKEN, 2)
    assert await credentials.get_header() == first

    desk.issuer.release(TOKEN)
    desk.clock.pass_s(41)
    assert await credentials.get_header() != first
    assert len(desk.forms) == 2


async def test_the_latest_token_of_a_caller_is_the_one_that_is_exchanged(desk: Desk) -> None:
    desk.issuer.life_s = 100
    desk.show("ann", life_s=300)
    credentials = desk.credentials("ann")
    await credentials.get_header()
    newer = desk.show("ann", life_s=6000)
    desk.clock.pass_s(101)

    await credentials.get_header()

    assert desk.forms[1]["subject_token"] == newer


async def test_a_token_is_used_no_longer_than_that_of_the_caller_is_valid(desk: Desk) -> None:
    desk.issuer.life_s = 3600
    desk.show("ann", life_s=100)
    credentials = desk.credentials("ann")
    await credentials.get_header()
    desk.clock.pass_s(101)

    with pytest.raises(TokenNeeded, match="still valid") as raised:
        await credentials.get_header()

    assert not raised.value.is_done()
    desk.show("ann", life_s=6000)
    assert raised.value.is_done()
    assert subject(desk, await credentials.get_header()) == "ann"


@pytest.mark.parametrize("expires_in", [None, "soon", -5, 1e30])
async def test_a_token_without_a_sensible_end_is_used_for_five_minutes(desk: Desk, expires_in: object) -> None:
    desk.issuer.answer_changes = {"expires_in": expires_in}
    desk.show("ann", life_s=6000)
    credentials = desk.credentials("ann")
    first = await credentials.get_header()
    desk.clock.pass_s(301)

    assert await credentials.get_header() != first


async def test_what_was_got_for_a_person_is_dropped_with_their_last_client(desk: Desk) -> None:
    for name in ("ann", "bob"):
        desk.show(name)
    before = {name: await desk.credentials(name).get_header() for name in ("ann", "bob")}

    desk.exchanges.forget(desk.person("ann"))

    assert await desk.credentials("ann").get_header() != before["ann"]
    assert await desk.credentials("bob").get_header() == before["bob"]


# --- what the server says ----------------------------------------------------------------------------------


async def test_a_rejected_token_is_got_again_once(desk: Desk) -> None:
    desk.show("ann")
    credentials = desk.credentials("ann")
    sent = await credentials.get_header()

    assert await credentials.handle_challenge(refusal(sent))
    newer = await credentials.get_header()
    assert newer != sent
    assert await credentials.handle_challenge(refusal(sent)), "another call was sent with the old one"

    with pytest.raises(Unreachable, match="rejects the token") as raised:
        await credentials.handle_challenge(refusal(newer))
    assert "audience" in raised.value.hint
    assert len(desk.forms) == 2


async def test_a_lack_of_scope_names_it_and_what_the_config_asks_for(desk: Desk) -> None:
    desk.show("ann")
    credentials = desk.credentials("ann", scopes=("read",))
    sent = await credentials.get_header()
    challenge = refusal(sent, 'Bearer error="insufficient_scope", scope="admin"', status=403)

    with pytest.raises(TokenNeeded, match=r"scope `admin`.*asks for `read`"):
        await credentials.handle_challenge(challenge)

    assert len(desk.forms) == 1


async def test_any_other_refusal_is_that_of_the_server(desk: Desk) -> None:
    assert not await desk.credentials("ann").handle_challenge(refusal(None, status=403))


# --- no token, and refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [None, "ann"])
async def test_without_a_token_of_the_caller_the_error_says_what_is_needed(desk: Desk, name: str | None) -> None:
    with pytest.raises(TokenNeeded) as raised:
        await desk.credentials(name).get_header()

    assert desk.issuer.issuer in raised.value.message
    assert "settings.http.auth" in raised.value.hint
    assert desk.issuer.requests == []


async def test_a_person_of_another_issuer_is_told_that_their_credential_is_none_to_exchange(desk: Desk) -> None:
    remote = structs.replace(desk.remote("ann"), login_of=Principal("forwarded", "ann"))

    with pytest.raises(TokenNeeded, match="known by `forwarded`"):
        await desk.exchanges.authorization("up", remote).get_header()


async def test_the_token_of_another_issuer_is_not_shown_to_this_one(desk: Desk) -> None:
    async with ExchangeIssuer(PUBLIC_URL) as other:
        stranger = Principal(other.issuer, "ann")
        desk.tokens.record(stranger, other.token_of("ann"))
        remote = structs.replace(desk.remote("ann"), login_of=stranger)

        with pytest.raises(TokenNeeded, match=f"known by `{other.issuer}`") as raised:
            await desk.exchanges.authorization("up", remote).get_header()

    assert not raised.value.is_done(), "else the server would be connected to again and again"
    assert desk.issuer.requests == []


async def test_a_refusal_has_the_code_and_no_part_of_a_token(desk: Desk) -> None:
    shown = desk.show("ann", aud="somebody else")

    with pytest.raises(TokenNeeded, match="`invalid_grant`") as raised:
        await desk.credentials("ann").get_header()

    assert not any(part in str(raised.value) for part in shown.split("."))


async def test_a_refused_token_is_not_shown_again_at_once_but_a_new_one_is(desk: Desk) -> None:
    desk.show("ann", aud="somebody else")
    credentials = desk.credentials("ann")
    for _ in range(3):
        with pytest.raises(TokenNeeded, match="invalid_grant"):
            await credentials.get_header()
    assert len(desk.forms) == 1

    desk.clock.pass_s(REFUSED_FOR_S)
    with pytest.raises(TokenNeeded, match="invalid_grant"):
        await credentials.get_header()
    assert len(desk.forms) == 2

    desk.show("ann")
    assert subject(desk, await credentials.get_header()) == "ann"


async def test_an_unknown_audience_is_a_matter_of_the_config(desk: Desk) -> None:
    desk.show("ann")

    with pytest.raises(TokenNeeded, match="invalid_target") as raised:
        await desk.credentials("ann", TokenExchange(audience="nobody")).get_header()

    assert "oauth.exchange" in raised.value.hint


async def test_a_wrong_secret_is_said_to_be_ours(desk: Desk) -> None:
    desk.show("ann")

    with pytest.raises(Unreachable, match="invalid_client") as raised:
        await desk.credentials("ann", client_secret="SECRET").get_header()

    assert "client_id" in raised.value.hint
    assert "SECRET" not in str(raised.value)


async def test_a_refusal_of_a_person_ends_the_use_of_what_they_had(desk: Desk) -> None:
    desk.issuer.life_s = 100
    desk.show("ann", life_s=6000)
    credentials = desk.credentials("ann")
    sent = await credentials.get_header()
    desk.issuer.refuse = lambda form: refused("access_denied")

    with pytest.raises(TokenNeeded):
        await credentials.handle_challenge(refusal(sent))
    with pytest.raises(TokenNeeded):
        await credentials.get_header()


async def test_while_the_issuer_is_away_a_valid_token_goes_on(desk: Desk) -> None:
    desk.issuer.life_s = 100
    desk.show("ann", life_s=6000)
    credentials = desk.credentials("ann")
    first = await credentials.get_header()
    desk.issuer.fail(TOKEN, 503)
    desk.clock.pass_s(60)
    await credentials.get_header()
    await desk.issuer.wait_for_request(TOKEN, 2)

    assert await credentials.get_header() == first
    desk.clock.pass_s(41)
    with pytest.raises(Unreachable, match="503"):
        await credentials.get_header()


@pytest.mark.parametrize(
    "changes",
    [
        {"issued_token_type": None},
        {"issued_token_type": f"{TYPES}refresh_token"},
        {"token_type": None},
        {"token_type": "N_A"},
        {"token_type": "DPoP"},
        {"access_token": None},
        {"access_token": "a\r\nb"},
        {"padding": "x" * (2 << 20)},
    ],
)
async def test_an_answer_that_is_not_the_requested_token_is_not_used(desk: Desk, changes: dict[str, Any]) -> None:
    desk.show("ann")
    desk.issuer.answer_changes = changes

    with pytest.raises(Unreachable, match="cannot exchange the caller's token"):
        await desk.credentials("ann").get_header()


async def test_the_token_endpoint_redirects_to_nobody(desk: Desk) -> None:
    desk.show("ann")
    seen: list[Request] = []

    def redirect(request: Request) -> Answer:
        seen.append(request)
        return Answer(307, headers={"Location": f"{desk.issuer.issuer}/elsewhere"})

    desk.issuer.manners.overrides[TOKEN] = redirect
    with pytest.raises(Unreachable, match="redirect that is not followed"):
        await desk.credentials("ann").get_header()

    assert desk.issuer.count("/elsewhere") == 0
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("oauth", "exchange"),
    [
        ({"issuer": "http://login.example.com"}, TokenExchange(audience="tickets")),
        ({}, TokenExchange(audience="tickets", token_endpoint="http://login.example.com/token")),
    ],
)
async def test_nothing_goes_to_what_is_not_https(desk: Desk, oauth: dict[str, str], exchange: TokenExchange) -> None:
    remote = desk.remote("ann", exchange, **oauth)
    person = Principal(remote.oauth.issuer or "", "ann")
    desk.tokens.record(person, desk.issuer.token_of("ann"))

    with pytest.raises(Unreachable, match="not https"):
        await desk.exchanges.authorization("up", structs.replace(remote, login_of=person)).get_header()


@pytest.mark.parametrize("endpoint", [None, 7, "http://login.example.com/token", "ftp://127.0.0.1/token"])
async def test_metadata_that_leads_elsewhere_or_nowhere_is_refused(desk: Desk, endpoint: object) -> None:
    desk.show("ann")
    desk.issuer.manners.metadata["token_endpoint"] = endpoint

    with pytest.raises(Unreachable, match="cannot exchange the caller's token"):
        await desk.credentials("ann").get_header()

    assert desk.forms == []


async def test_metadata_of_another_issuer_is_refused(desk: Desk) -> None:
    desk.show("ann")
    desk.issuer.manners.metadata["issuer"] = "https://evil.example.com"

    with pytest.raises(Unreachable, match="another issuer"):
        await desk.credentials("ann").get_header()

    assert desk.forms == []


# --- Entra ID ----------------------------------------------------------------------------------------------

# As in https://learn.microsoft.com/entra/identity-platform/v2-oauth2-on-behalf-of-flow
CLAIMS = '{"access_token":{"polids":{"essential":true,"values":["00aa00aa-bb11-cc22-dd33-44ee44ee44ee"]}}}'
DENIED = {
    "error": "interaction_required",
    "error_description": "AADSTS50079: Due to a configuration change made by your administrator, SECRET",
    "error_codes": [50079],
    "suberror": "basic_action",
    "claims": CLAIMS,
}
GRANTED = {"token_type": "Bearer", "scope": "api://tickets/read", "expires_in": 3269, "ext_expires_in": 0}


class Entra:
    """The token endpoint of a tenant, with the answers of its documentation."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.forms: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.denial: dict[str, Any] | None = None
        desk.issuer.manners.overrides[TOKEN] = self._answer

    def credentials(self, name: str) -> ExchangedCredentials:
        scopes = ("api://tickets/.default",)
        return self.desk.credentials(name, TokenExchange(), grant="on_behalf_of", scopes=scopes)

    def _answer(self, request: Request) -> Answer:
        self.forms.append(request.form)
        self.headers.append(request.headers)
        if self.denial is not None:
            return Answer(400, self.denial)
        return Answer(200, {**GRANTED, "access_token": f"entra-{len(self.forms)}", "refresh_token": "SECRET"})


@pytest.fixture
def entra(desk: Desk) -> Entra:
    return Entra(desk)


async def test_on_behalf_of_is_asked_for_as_entra_documents_it(desk: Desk, entra: Entra) -> None:
    shown = desk.show("ann")

    assert await entra.credentials("ann").get_header() == "Bearer entra-1"

    assert entra.forms == [
        {
            "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
            "client_id": CLIENT,
            "client_secret": SECRET,
            "assertion": shown,
            "scope": "api://tickets/.default",
            "requested_token_use": "on_behalf_of",
        }
    ]
    assert "authorization" not in entra.headers[0]


async def test_a_claims_challenge_is_shown_with_its_claims_and_numbers_and_no_other_text(
    desk: Desk, entra: Entra
) -> None:
    shown = desk.show("ann")
    entra.denial = DENIED

    with pytest.raises(TokenNeeded, match=r"interaction_required.*AADSTS50079, basic_action") as raised:
        await entra.credentials("ann").get_header()

    assert CLAIMS in raised.value.hint
    assert "log in" in raised.value.hint
    assert "SECRET" not in str(raised.value)
    assert not any(part in str(raised.value) for part in shown.split("."))


@pytest.mark.parametrize("claims", [7, None, "{" * 5000, '{"a":\n1}', "SECRET", '{"a": "é"}', '{"a": 1}\x1b'])
async def test_odd_claims_are_not_shown(desk: Desk, entra: Entra, claims: object) -> None:
    desk.show("ann")
    entra.denial = {**DENIED, "claims": claims, "error_codes": "SECRET", "suberror": {"SECRET": 1}}

    with pytest.raises(TokenNeeded, match="interaction_required") as raised:
        await entra.credentials("ann").get_header()

    assert "claims" not in raised.value.hint
    assert "SECRET" not in str(raised.value)

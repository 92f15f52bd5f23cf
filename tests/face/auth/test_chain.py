"""Which provider decides about a credential, and what clients are answered whose credential is refused."""

from __future__ import annotations

import asyncio
from asyncio import Future

import pytest

from dynamic_mcp.face.auth.chain import AuthChain
from dynamic_mcp.face.auth.metadata import ResourceMetadata
from dynamic_mcp.face.auth.provider import AuthResult, CredentialDenial
from dynamic_mcp.face.http.authenticator import Outcome, Page
from dynamic_mcp.face.http.exchange import RequestHead, Response
from dynamic_mcp.identity import Authentication, Principal
from tests.face.auth.parties import PUBLIC_URL, head_of
from tests.program import BOUND_S

ANN = Authentication(Principal("test", "ann"), "test")
URL = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp"


class Scripted:
    """A provider that recognises tokens with its letter, and answers as told."""

    def __init__(self, letter: str, answer: AuthResult | Future[AuthResult]) -> None:
        self.letter = letter
        self.name = f"scripted {letter}"
        self.answer = answer
        self.asked: list[str | None] = []

    def recognises(self, head: RequestHead, token: str | None) -> bool:
        """Tell whether a token begins with the letter."""
        return token is not None and token.startswith(self.letter)

    def authenticate(self, head: RequestHead, token: str | None) -> AuthResult | Future[AuthResult]:
        """Answer as told."""
        self.asked.append(token)
        return self.answer

    def is_valid(self, authentication: Authentication) -> bool:
        """Tell whether it is the answer."""
        return authentication is self.answer

    def find_page(self, method: str, path: bytes) -> Page | None:
        """Return None."""
        return None

    async def close(self) -> None:
        """Do nothing."""


def chain(*providers: Scripted, scopes: tuple[str, ...] = (), public_url: str | None = PUBLIC_URL) -> AuthChain:
    metadata = None if public_url is None else ResourceMetadata(public_url, path="/mcp")
    return AuthChain(providers, metadata, scopes=scopes)


def refused(outcome: Outcome | Future[Outcome]) -> tuple[int, str]:
    """Return the status and the challenge of a refusal."""
    assert isinstance(outcome, Response)
    return outcome.status, dict(outcome.headers)[b"www-authenticate"].decode()


def test_the_first_provider_that_recognises_a_credential_decides_for_good_or_bad() -> None:
    bad, good = Scripted("a", CredentialDenial("invalid_token", "it is bad")), Scripted("", ANN)
    both = chain(bad, good)

    status, challenge = refused(both.authenticate(head_of(authorization="Bearer abc")))
    assert (status, 'error="invalid_token", error_description="it is bad"' in challenge) == (401, True)
    assert good.asked == []
    assert both.authenticate(head_of(authorization="bEARER   xyz ")) is ANN
    assert good.asked == ["xyz"]


def test_without_a_credential_the_client_is_told_where_to_log_in_and_of_no_error() -> None:
    assert refused(chain(scopes=("tools", "more")).authenticate(head_of())) == (
        401,
        f'Bearer scope="tools more", resource_metadata="{URL}"',
    )
    assert refused(chain(public_url=None).authenticate(head_of())) == (401, 'Bearer realm="dynamic-mcp"')


def test_a_password_of_the_reverse_proxy_is_no_credential() -> None:
    assert refused(chain(Scripted("", ANN)).authenticate(head_of(authorization="Basic YTpi")))[0] == 401


def test_a_credential_that_nobody_knows_is_an_invalid_token() -> None:
    status, challenge = refused(chain(Scripted("a", ANN)).authenticate(head_of(authorization="Bearer secret")))

    assert status == 401
    assert 'error="invalid_token"' in challenge
    assert "secret" not in challenge


@pytest.mark.parametrize("value", ["Bearer", "Bearer ", "Bearer a b", "Bearer a, Bearer b", "Bearer \xe4"])
def test_a_malformed_token_is_refused_before_anybody_is_asked(value: str) -> None:
    provider = Scripted("", ANN)

    assert refused(chain(provider).authenticate(head_of(authorization=value)))[0] == 401
    assert provider.asked == []


def test_a_token_of_more_than_16_kb_is_refused() -> None:
    chained = chain(Scripted("", ANN))

    assert chained.authenticate(head_of(authorization="Bearer " + "a" * (16 << 10))) is ANN
    assert refused(chained.authenticate(head_of(authorization="Bearer " + "a" * (16 << 10) + "a")))[0] == 401


def test_two_authorization_headers_are_an_invalid_request() -> None:
    head = head_of(authorization="Bearer a, Bearer b", repeated="authorization")

    status, challenge = refused(chain(Scripted("", ANN)).authenticate(head))
    assert (status, 'error="invalid_request"' in challenge) == (400, True)


def test_a_token_in_the_query_is_none() -> None:
    provider = Scripted("", ANN)
    outcome = chain(provider).authenticate(head_of(target="/mcp?access_token=abc&authorization=Bearer+abc"))

    assert "error" not in refused(outcome)[1]
    assert provider.asked == []


def test_a_lack_of_scopes_is_forbidden_and_names_them() -> None:
    lacking = Scripted("", CredentialDenial("insufficient_scope", "it lacks a scope", ("a", "b")))
    told = 'Bearer error="insufficient_scope", error_description="{}", scope="a b", resource_metadata="' + URL + '"'

    assert refused(chain(lacking).authenticate(head_of(authorization="Bearer x"))) == (
        403,
        told.format("it lacks a scope"),
    )
    assert refused(chain().lacks_scope(("a", "b"))) == (
        403,
        told.format("the token lacks a required scope"),
    )


@pytest.mark.parametrize(
    ("target", "below"),
    [
        ("/mcp/", "/"),
        ("/mcp/time?x=1", "/time"),
        ("/mcp/profile/a%20b", "/profile/a%20b"),
        ("/mcp/..", ""),
        ('/mcp/"x"', ""),
        ("/sse", ""),
    ],
)
def test_the_metadata_is_that_of_the_very_url_that_was_asked(target: str, below: str) -> None:
    assert f'resource_metadata="{URL}{below}"' in refused(chain().authenticate(head_of(target=target)))[1]


def test_a_reason_cannot_end_its_quotes() -> None:
    quoting = Scripted("", CredentialDenial("invalid_token", 'a "quote" \\ and ü'))

    challenge = refused(chain(quoting).authenticate(head_of(authorization="Bearer x")))[1]
    assert "error_description=\"a 'quote' / and ?\"" in challenge


async def test_an_answer_that_takes_its_time_is_waited_for() -> None:
    for answer, status in ((ANN, None), (CredentialDenial("invalid_token", "no"), 401)):
        later: Future[AuthResult] = asyncio.get_running_loop().create_future()
        outcome = chain(Scripted("", later)).authenticate(head_of(authorization="Bearer x"))
        assert isinstance(outcome, Future)
        later.set_result(answer)
        async with asyncio.timeout(BOUND_S):
            found = await outcome
        assert found is ANN if status is None else refused(found)[0] == status


async def test_whoever_cannot_be_judged_is_not_let_in() -> None:
    for failure in (RuntimeError("a bug"), None):
        later: Future[AuthResult] = asyncio.get_running_loop().create_future()
        outcome = chain(Scripted("", later)).authenticate(head_of(authorization="Bearer x"))
        assert isinstance(outcome, Future)
        if failure is None:
            later.cancel()
        else:
            later.set_exception(failure)
        async with asyncio.timeout(BOUND_S):
            found = await outcome
        assert isinstance(found, Response)
        assert found.status == 503


def test_what_was_shown_counts_as_long_as_a_provider_says_so() -> None:
    assert chain(Scripted("a", ANN)).is_valid(ANN)
    assert not chain(Scripted("a", CredentialDenial("invalid_token", "no"))).is_valid(ANN)

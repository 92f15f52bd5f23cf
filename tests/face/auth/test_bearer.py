"""Tokens of our own: who has them, when they end, and what is kept of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dynamic_mcp.config.auth import BearerAuth
from dynamic_mcp.errors import DynamicMcpError, NotFound
from dynamic_mcp.face.auth.bearer import BearerProvider, TokenFile
from dynamic_mcp.face.auth.provider import CredentialDenial
from dynamic_mcp.face.auth.token_store import TokenStore
from dynamic_mcp.identity import Authentication, Principal
from tests.face.auth.parties import BEARER, TOKEN, head_of, make_token
from tests.windows import is_private


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    return TokenStore(tmp_path / "tokens", tmp_path / "dynamic-mcp.json")


class Wall:
    """A clock that a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def provider(store: TokenStore, config: BearerAuth = BEARER, wall: Wall | None = None) -> BearerProvider:
    return BearerProvider(config, TokenFile(store), now=wall or Wall())


def found(known: BearerProvider, token: str) -> Authentication:
    """Return who has a token."""
    outcome = known.authenticate(head_of(), token)
    assert isinstance(outcome, Authentication)
    return outcome


def why_not(known: BearerProvider, token: str) -> str:
    """Return why a token is refused."""
    outcome = known.authenticate(head_of(), token)
    assert isinstance(outcome, CredentialDenial)
    assert outcome.error == "invalid_token"
    assert token not in outcome.why
    return outcome.why


def test_a_token_of_the_config_is_its_subject_with_its_roles(store: TokenStore) -> None:
    known = provider(store)

    assert known.recognises(head_of(), TOKEN)
    assert found(known, TOKEN) == Authentication(Principal("token", "ann"), "bearer", roles=("reader",))
    assert not known.recognises(head_of(), TOKEN[:-1])
    assert not known.recognises(head_of(), None)


def test_a_token_that_was_made_is_known_at_once_and_refused_at_once_when_it_is_revoked(store: TokenStore) -> None:
    known = provider(store)
    token, made = store.create("ci", ("reader",), lifetime_s=None, now=0)
    ci = found(known, token)

    assert ci == Authentication(Principal("token", "ci"), "bearer", roles=("reader",))
    assert known.is_valid(ci)
    store.revoke(made.id)
    assert "revoked" in why_not(known, token)
    assert not known.is_valid(ci)


def test_a_token_that_was_never_made_is_recognised_by_its_beginning_and_refused(store: TokenStore) -> None:
    known = provider(store)

    assert known.recognises(head_of(), "dmcp_guess")
    assert why_not(known, "dmcp_guess")


def test_a_token_ends_when_it_expires(store: TokenStore) -> None:
    wall = Wall()
    known = provider(store, wall=wall)
    token = make_token(store, lifetime_s=60, now=wall.now)
    ann = found(known, token)

    wall.now += 59
    assert known.is_valid(ann)
    wall.now += 1
    assert why_not(known, token) == "the token has expired"
    assert not known.is_valid(ann)


def test_of_two_tokens_of_one_person_only_the_revoked_one_ends(store: TokenStore) -> None:
    known = provider(store)
    (first, made), (second, _) = (store.create("ann", (), lifetime_s=None, now=0) for _ in range(2))
    before, other = found(known, first), found(known, second)
    assert before == other

    store.revoke(made.id)
    assert not known.is_valid(before)
    assert known.is_valid(other)
    assert found(known, second) is other


def test_only_hashes_are_kept_in_a_file_for_the_user_alone(store: TokenStore) -> None:
    tokens = [make_token(store) for _ in range(3)]
    content = store.file.read_text()

    assert not [token for token in tokens if token in content or token[5:] in content]
    assert len({*tokens}) == 3
    assert all(len(token) >= 48 for token in tokens)
    assert is_private(store.file)
    assert is_private(store.file.parent)


def test_tokens_are_those_of_one_config(store: TokenStore, tmp_path: Path) -> None:
    token = make_token(store)
    other = TokenStore(tmp_path / "tokens", tmp_path / "other.json")

    assert why_not(provider(other), token)


def test_what_cannot_be_read_lets_nobody_in_and_is_not_overwritten(store: TokenStore) -> None:
    known = provider(store)
    token = make_token(store)
    ann = found(known, token)
    store.file.write_text("{")

    assert why_not(known, token)
    assert not known.is_valid(ann)
    with pytest.raises(DynamicMcpError, match="could not read"):
        make_token(store)
    assert store.file.read_text() == "{"


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such links")
def test_a_link_in_the_place_of_the_file_is_not_followed(store: TokenStore, tmp_path: Path) -> None:
    token = make_token(store)
    elsewhere = tmp_path / "elsewhere"
    store.file.rename(elsewhere)
    store.file.symlink_to(elsewhere)

    assert why_not(provider(store), token)


def test_an_id_or_its_beginning_revokes_and_nothing_else_does(store: TokenStore) -> None:
    _, made = store.create("ann", (), lifetime_s=None, now=0)

    for id in ("", f"{made.id}0", made.hash):
        with pytest.raises(NotFound):
            store.revoke(id)
    assert store.load() == (made,)
    assert store.revoke(made.id[:-1]) == made
    assert store.load() == ()

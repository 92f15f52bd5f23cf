"""Secrets in JSON values are masked, in keys and values, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.config import secrets
from dynamic_mcp.config.masking import mask_string, mask_value

TOKENS = [
    *("sk-abcdefghijkl12", "sk_live_abcdefgh12", "ghp_abcdefgh1234", "github_pat_abcdefgh12", "glpat-abcdefgh12"),
    *("xoxb-abcdefgh12", "xapp-abcdefgh12", "AKIAABCDEFGH1234", "AIzaABCDEFGH1234", "ya29.ABCDEFGH1234"),
    *("npm_ABCDEFGH1234", "pypi-ABCDEFGH1234", "hf_ABCDEFGH1234", "SG.ABCDEFGH1234", "eyJhbGciOiJI.eyJzdWIiOiIx"),
]


@pytest.mark.parametrize("token", TOKENS)
def test_a_token_is_masked_wherever_it_is(token: str) -> None:
    value = {"note": f"use {token} for it", token: 1, "list": [{"deep": token}], "n": 1}
    assert token not in str(mask_value(value))


@pytest.mark.parametrize("secret", ["hunter2", 4711, ["a", "b"], {"user": "ann"}, [1, 2.5]])
def test_what_stands_under_the_name_of_a_secret_is_masked_whole(secret: object) -> None:
    assert mask_value({"db_password": secret, "text": "hello"}) == {"db_password": "***", "text": "hello"}


def test_what_can_be_no_secret_stays() -> None:
    value: dict[str, object] = {
        "token": None,
        "has_secret": True,
        "password": "",
        "path": "src/a b.py:3",
        "n": [1, 2.5],
        "empty": {},
    }
    assert mask_value(value) == value


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgres://ann:hunter2@db/x", "postgres://ann:***@db/x"),
        ("--token=hunter2", "--token=***"),
        ("password: hunter2", "password: ***"),
        ("Authorization: Bearer abc123def", "Authorization: ***"),
        ("curl with basic YW5uOmh1bnRlcjI=", "curl with basic ***"),
        ("nothing to see here", "nothing to see here"),
    ],
)
def test_the_rest_of_a_text_stays(text: str, masked: str) -> None:
    assert mask_string(text) == masked


@given(st.text(max_size=40), st.sampled_from([*TOKENS, "bearer abcdefg1", "https://h/?token=abcdef", "key=x"]))
def test_whatever_the_recogniser_finds_is_masked(around: str, secret: str) -> None:
    for text in (around + " " + secret, secret + around, around):
        found = list(secrets.find_in_text(text, ""))
        assert (mask_string(text) != text) == any(each.value != secrets.MASKED for each in found)

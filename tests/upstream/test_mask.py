"""What a program says is shown without the secrets that it was given."""

from __future__ import annotations

import pytest

from dynamic_mcp.config.resolved import Program, Remote
from dynamic_mcp.upstream.mask import mask_of


def program(*args: str, **env: str) -> Program:
    return Program(command="server", args=args, env=env, cwd=None)


@pytest.mark.parametrize(
    "name",
    ["GITHUB_TOKEN", "token", "CLIENT_SECRET", "DB_PASSWORD", "DB_PASS", "PGPASSWORD", "GITHUB_PAT", "API_KEY",
     "OPENAI_APIKEY", "AWS_SECRET_ACCESS_KEY", "GOOGLE_CREDENTIALS", "BASIC_AUTH", "AUTHORIZATION", "DB_PWD"],
)  # fmt: skip
def test_a_variable_that_is_named_as_a_secret_is_masked(name: str) -> None:
    assert mask_of(program(**{name: "hunter22"}))("the value is hunter22.") == "the value is ***."


@pytest.mark.parametrize("name", ["HOME", "PWD", "PATH", "XAUTHORITY", "MODE", "COMPASS", "KEYBOARD", "AUTHOR"])
def test_any_other_variable_is_shown(name: str) -> None:
    assert mask_of(program(**{name: "hunter22"}))("the value is hunter22.") == "the value is hunter22."


@pytest.mark.parametrize(
    "args",
    [
        ("--api-key", "hunter22"),
        ("--api-key=hunter22",),
        ("--apiKey=hunter22",),
        ("-e", "DB_PASSWORD=hunter22"),
        ("--header", "Authorization: Bearer hunter22"),
        ("postgres://me:hunter22@db.test/main",),
    ],
)
def test_an_argument_that_holds_a_secret_is_masked(args: tuple[str, ...]) -> None:
    assert mask_of(program(*args))("the value is hunter22.") == "the value is ***."


def test_each_line_of_a_secret_is_masked_alone() -> None:
    mask = mask_of(program(PRIVATE_KEY="-----BEGIN-----\nMIIEvQIBADAN\n-----END-----"))
    assert mask("bad key MIIEvQIBADAN") == "bad key ***"


def test_the_longer_of_two_secrets_is_masked_whole() -> None:
    assert mask_of(program(A_TOKEN="hunter22", B_TOKEN="hunter22-and-more"))("hunter22-and-more") == "***"


def test_a_short_value_is_not_a_secret() -> None:
    assert mask_of(program(USE_TOKEN="true"))("true") == "true"


@pytest.mark.parametrize("name", ["Authorization", "X-Api-Key", "Cookie", "PRIVATE-TOKEN"])
def test_a_header_that_is_named_as_a_secret_is_masked_whole_and_without_its_scheme(name: str) -> None:
    mask = mask_of(Remote(kind="http", url="https://a.test/mcp", headers={name: "Bearer hunter22"}))

    assert mask("`Bearer hunter22`, that is hunter22") == "`***`, that is ***"


def test_secrets_in_a_url_are_masked() -> None:
    url = "https://me:hunter22@a.test/mcp?api_key=swordfish&page=fourteen"
    mask = mask_of(Remote(kind="http", url=url, headers={"X-Team": "teamwork"}))

    assert mask("hunter22 swordfish fourteen teamwork") == "*** *** fourteen teamwork"

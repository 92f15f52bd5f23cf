"""What a program says is shown without the secrets that it was given."""

from __future__ import annotations

import pytest

from dynamic_mcp.config.resolved import IdentityProviderConfig, OAuth, Program, Remote
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


TOKENS = [
    "sk-abcdefghijklmnop1234",
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "a1B2" * 6,
    "glpat-abcdefgh12345678",
    "xoxb-1234567890-abcdef",
    "AKIA" + "ABCD1234" * 2,
    "AIza" + "a1B2" * 8,
    "npm_" + "a1B2" * 9,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
]


@pytest.mark.parametrize("token", TOKENS)
def test_an_argument_that_has_the_form_of_a_token_is_masked_without_any_name(token: str) -> None:
    assert mask_of(program("serve", token))(f"serve {token}: refused") == "serve ***: refused"


@pytest.mark.parametrize("token", TOKENS)
def test_a_token_is_masked_in_any_variable_option_header_and_query(token: str) -> None:
    for upstream in (
        program(f"--with={token}"),
        program("--with", f"a,{token}"),
        program(MODE=f"a {token}"),
        Remote(kind="http", url="https://a.test", headers={"X-Team": token}),
        Remote(kind="http", url=f"https://a.test/mcp?team={token}", headers={}),
        Remote(kind="http", url=f"https://a.test/{token}/mcp", headers={}),
    ):
        assert mask_of(upstream)(f"the value is {token}") == "the value is ***"


@pytest.mark.parametrize(
    ("arg", "secret"),
    [
        ("Bearer swordfish", "swordfish"),
        ("use Bearer sw0rdfish here", "sw0rdfish"),
        ("--header=X-Team: Bearer swordfish", "swordfish"),
    ],
)
def test_what_follows_bearer_is_masked(arg: str, secret: str) -> None:
    assert mask_of(program(arg))(f"the value is {secret}") == "the value is ***"


@pytest.mark.parametrize(
    "arg",
    ["--db=postgres://me:hunter22@db.test/main", "https://a.test/?api_key=hunter22", "https://a.test/?a=b&sig=hunter22",
     "postgres://me@corp:hunter22@db.test", "postgres://me:hunter22@22@db.test"],
)  # fmt: skip
def test_a_secret_in_a_url_among_the_arguments_is_masked(arg: str) -> None:
    assert "hunter22" not in mask_of(program(arg))(f"cannot reach {arg}")


@pytest.mark.parametrize("name", ["X-Signature", "X-Authentication", "X-Apikey"])
def test_a_header_that_signs_or_authenticates_is_masked(name: str) -> None:
    mask = mask_of(Remote(kind="http", url="https://a.test/mcp", headers={name: "hunter22"}))
    assert mask("hunter22") == "***"


@pytest.mark.parametrize(
    "arg",
    ["serve", "--verbose", "-y", "/home/me/task-list/server.py", "@modelcontextprotocol/server-github",
     "mcp-server-time", "risk-assessment-server", "https://a.test/mcp?page=fourteen", "postgres://db.test/main",
     "token", "--token-file", "3.11", "C:\\Users\\me\\server.js", "bearer-authentication", "Basic authentication"],
)  # fmt: skip
def test_what_is_certainly_no_secret_is_shown(arg: str) -> None:
    assert mask_of(program("serve", arg))(f"serve {arg}") == f"serve {arg}"


def test_an_option_after_an_option_that_is_named_as_a_secret_is_shown() -> None:
    assert mask_of(program("--token", "--verbose"))("--token --verbose") == "--token --verbose"


def test_a_token_in_a_command_is_masked() -> None:
    token = TOKENS[1]
    upstream = Program(command=f"server {token}", args=(), env={}, cwd=None)
    assert (
        mask_of(upstream)(f"the command `server {token}` was not found") == "the command `server ***` was not found"
    )


def test_every_secret_of_a_login_is_masked() -> None:
    provider = IdentityProviderConfig("https://idp.test/token", "me", "hunter24")
    oauth = OAuth(client_secret="hunter22", assertion="hunter23", identity_provider=provider)
    server = Remote(kind=None, url="https://h.test", headers={}, oauth=oauth)

    assert mask_of(server)("hunter22 hunter23 hunter24 https://idp.test") == "*** *** *** https://idp.test"

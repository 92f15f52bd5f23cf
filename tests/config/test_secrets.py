"""What looks like a secret is found wherever it stands in a server's entry, and nothing else is."""

import pytest

from dynamic_mcp.config.secrets import find_literals, mask_text, plain_secrets

TOKEN = "ghp_" + "a1B2" * 9


def found(**entry: object) -> list[tuple[object, ...]]:
    return [(*secret.path, secret.value) for secret in find_literals(entry)]


def test_a_secret_is_found_in_each_field_in_the_order_of_the_fields() -> None:
    assert found(
        env={"API_KEY": "hunter22", "MODE": f"fast {TOKEN}"},
        args=["serve", TOKEN, "--token", "hunter23", "--password=hunter24", "/srv/data"],
        command=f"server {TOKEN}",
        headers={"X-Signature": "hunter25", "X-Team": "blue"},
        oauth={
            "client_secret": "hunter26",
            "client_id": "me",
            "assertion": "hunter27",
            "identity_provider": {"client_id": "me", "client_secret": "hunter28"},
        },
    ) == [
        ("env", "API_KEY", "hunter22"),
        ("env", "MODE", TOKEN),
        ("args", 1, TOKEN),
        ("args", 3, "hunter23"),
        ("args", 4, "hunter24"),
        ("command", f"{TOKEN}"),
        ("headers", "X-Signature", "hunter25"),
        ("oauth", "client_secret", "hunter26"),
        ("oauth", "assertion", "hunter27"),
        ("oauth", "identity_provider", "client_secret", "hunter28"),
    ]


def test_secrets_that_overlap_are_one() -> None:
    (secret,) = find_literals({"url": f"https://a.test/mcp?token=a,{TOKEN},b&page=2"})
    assert (secret.start, secret.value, secret.name) == (25, f"a,{TOKEN},b", "token")


def test_every_secret_of_a_url_is_found() -> None:
    url = f"https://me:hunter22@a.test/{TOKEN}/mcp?sig=hunter23&page=2&api%5Fkey=hunter24#access_token=hunter25"
    assert [value for _, value in found(url=url)] == ["hunter22", TOKEN, "hunter23", "hunter24", "hunter25"]


def test_a_scheme_and_a_reference_are_no_part_of_a_secret() -> None:
    headers = {"Authorization": "Bearer hunter22", "Cookie": "${COOKIE}", "X-Api-Key": "${KEY:-hunter23}"}
    assert [value for *_, value in found(headers=headers)] == ["hunter22", "hunter23"]


@pytest.mark.parametrize("value", ["", "true", "FALSE", "none", "100000"])
def test_a_switch_or_a_small_number_is_no_secret(value: str) -> None:
    assert found(env={"MAX_TOKENS": value}) == []


def test_a_short_value_is_not_warned_of_but_a_short_password_in_a_url_is() -> None:
    document = {"mcpServers": {"a": {"command": "x", "env": {"API_KEY": "test", "DB": "pg://me:test@db.test/x"}}}}
    assert list(plain_secrets(document)) == [("mcpServers", "a", "env", "DB")]


def test_a_message_is_shown_without_tokens_and_the_secrets_of_urls() -> None:
    text = f'cannot use `https://me:hunter22@a.test?api_key=hunter23`, "{TOKEN}" or Authorization: Bearer swordfish'
    assert mask_text(text) == ('cannot use `https://me:***@a.test?api_key=***`, "***" or Authorization: Bearer ***')


@pytest.mark.parametrize(
    "text",
    [
        "the file /home/me/tasks/server.py is not there",
        "see https://docs.test/guide?page=2#top",
        "@modelcontextprotocol/server-github needs bearer authentication",
        "`--token-file` wants a path",
    ],
)
def test_a_message_without_secrets_stays_as_it_is(text: str) -> None:
    assert mask_text(text) == text


@pytest.mark.timeout(20)
@pytest.mark.parametrize("part", ["?", "&", ")", "://", "://a:", "bearer ", "=", " ", "a", "@", "-", "key=", "sk-"])
def test_a_long_text_is_searched_once(part: str) -> None:
    text = "://" + part * 100_000
    assert mask_text(text).startswith("://")
    list(find_literals({"url": text, "args": [text], "env": {"A": text}}))

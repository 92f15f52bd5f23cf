"""`token`: what it prints and where, what it keeps, and what it says where a token is not of use yet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import CliRunner

pytestmark = pytest.mark.usefixtures("state")

BEARER = {"http": {"auth": [{"kind": "bearer"}]}, "access": {"roles": {"reader": [{"only": "read"}]}}}


@pytest.fixture
def serving(cli: CliRunner) -> CliRunner:
    """A config that accepts tokens, with one role."""
    cli.configure({}, settings=BEARER)
    return cli


def test_a_token_goes_to_stdout_and_the_words_go_to_stderr(serving: CliRunner) -> None:
    done = serving.run("token", "create", "--as", "ci", "--role", "reader")

    assert done.code == 0
    assert done.out.startswith("dmcp_")
    assert done.out.split() == [done.out.strip()]
    (words,) = done.err.splitlines()
    assert "is for `ci`, and is shown only now; it expires on " in words
    assert done.out.strip() not in words


def test_a_token_can_be_had_as_json(serving: CliRunner) -> None:
    made = serving.run("token", "create", "--as", "ci", "--role", "reader", "--expires", "never", "--json").json

    assert made["token"].startswith("dmcp_")
    assert (made["subject"], made["roles"], made["expires_at"]) == ("ci", ["reader"], None)


def test_a_token_is_shown_once_and_kept_nowhere(serving: CliRunner, state: Path) -> None:
    token = serving.run("token", "create", "--as", "ci").out.strip()

    listed = serving.run("token", "list")
    assert [each["subject"] for each in listed.json] == ["ci"]
    assert token not in listed.out
    files = [each for each in state.rglob("*") if each.is_file()]
    assert files
    assert not [each for each in files if token in each.read_text(errors="replace", encoding="utf-8")]


def test_a_revoked_token_is_gone_and_the_others_stay(serving: CliRunner) -> None:
    ids = [serving.run("token", "create", "--as", name, "--json").json["id"] for name in ("ann", "bob")]

    done = serving.run("token", "revoke", ids[0])
    assert (done.code, done.out) == (0, "")
    assert f"token {ids[0]} of `ann` is revoked" in done.err
    assert [each["id"] for each in serving.run("token", "list").json] == ids[1:]
    again = serving.run("token", "revoke", ids[0])
    assert again.code == 2
    assert f"no token is named `{ids[0]}`" in again.err


def test_undo_knows_nothing_of_tokens(serving: CliRunner) -> None:
    before = serving.config.read_bytes()
    id = serving.run("token", "create", "--as", "ci", "--json").json["id"]

    assert "nothing to undo" in serving.run("undo").err
    assert [each["id"] for each in serving.run("token", "list").json] == [id]
    assert serving.config.read_bytes() == before


def test_tokens_of_one_config_are_none_of_another(serving: CliRunner, tmp_path: Path) -> None:
    serving.run("token", "create", "--as", "ci")
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"mcpServers": {}}), encoding="utf-8")

    assert serving.run("token", "list", "-c", str(other)).json == []


def test_what_makes_a_token_useless_yet_is_said(cli: CliRunner, serving: CliRunner) -> None:
    assert "has no role `raeder`, so it allows nothing\nhint: did you mean `reader`?" in (
        serving.run("token", "create", "--as", "ci", "--role", "raeder").err
    )
    cli.configure({})
    words = cli.run("token", "create", "--as", "ci", "--role", "reader").err
    assert "does not accept it yet\nhint: add " in words
    assert "roles mean nothing yet" in words
    cli.configure({"files": {"command": "files", "approve": ["delete"]}}, settings={"http": BEARER["http"]})
    assert "roles mean nothing yet" in cli.run("token", "create", "--as", "ci", "--role", "reader").err


def test_the_beginning_of_an_id_names_the_token_unless_several_begin_so(serving: CliRunner) -> None:
    ids = [serving.run("token", "create", "--as", "ann", "--json").json["id"] for _ in range(17)]

    first = next(id[0] for id in ids if sum(each[0] == id[0] for each in ids) > 1)  # of 17 hexadecimal ids
    ambiguous = serving.run("token", "revoke", first)
    assert ambiguous.code == 2
    assert f"several tokens start with `{first}`" in ambiguous.err
    assert serving.run("token", "revoke", ids[0][:-1]).code == 0
    assert [each["id"] for each in serving.run("token", "list").json] == ids[1:]


def test_tokens_can_be_revoked_though_the_config_is_broken(serving: CliRunner) -> None:
    id = serving.run("token", "create", "--as", "ci", "--json").json["id"]
    serving.config.write_text("{", encoding="utf-8")

    assert serving.run("token", "create", "--as", "ci").code == 2
    assert serving.run("token", "revoke", id).code == 0
    assert serving.run("token", "list").json == []


@pytest.mark.parametrize("expires", ["", "soon", "0", "-1d", "1d1h", "999999d", "0.1s"])
def test_a_time_that_is_none_is_refused(serving: CliRunner, expires: str) -> None:
    done = serving.run("token", "create", "--as", "ci", "--expires", expires)

    assert (done.code, done.out) == (2, "")
    assert "`--expires" in done.err


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a" * 201, "\x1b[31m"])
def test_a_name_that_cannot_be_shown_is_refused(serving: CliRunner, name: str) -> None:
    assert serving.run("token", "create", "--as", name).code == 2


def test_a_person_sees_a_table(serving: CliRunner) -> None:
    serving.run("token", "create", "--as", "ci", "--role", "reader", "--expires", "never")

    shown = serving.run_on_terminal("token", "list").out
    assert "FOR" in shown
    assert "never" in shown


def test_check_says_what_to_do_about_a_token_that_is_never_accepted(cli: CliRunner) -> None:
    tokens = [{"token": "${FRONT_TOKEN}", "subject": "ci"}, {"token": "short", "subject": "ann"}]
    cli.configure({}, settings={"http": {"auth": [{"kind": "bearer", "tokens": tokens}]}})
    found = [each for each in cli.run("check", "--json").json if each["where"].endswith(".token")]

    assert [each["level"] for each in found] == ["warning"] * len(found)
    assert {"`${FRONT_TOKEN}` is not set", "has fewer than 24 characters, so it is not accepted"} <= {
        each["what"] for each in found
    }
    assert all("openssl rand" in each["hint"] or "${" in each["hint"] for each in found)


def test_replicas_that_share_a_store_have_their_tokens_there(cli: CliRunner, state: Path, tmp_path: Path) -> None:
    store = (tmp_path / "shared" / "store.sqlite").as_uri().replace("file:", "sqlite:")
    cluster = {"peers": ["http://127.0.0.1:9"], "keys": ["k" * 32], "name": "a", "store": store}
    cli.configure({}, settings={**BEARER, "cluster": cluster})

    made = cli.run("token", "create", "--as", "ci", "--json").json
    assert [each["id"] for each in cli.run("token", "list").json] == [made["id"]]
    assert not (state / "tokens").exists()
    refused = cli.run("token", "create", "--as", "ci", "--expires", "never")
    assert refused.code != 0
    assert "a token that replicas share expires in 400 days at most" in refused.err
    assert cli.run("token", "revoke", made["id"]).code == 0
    assert cli.run("token", "list").json == []


def test_a_token_can_be_revoked_while_the_config_is_invalid(serving: CliRunner) -> None:
    made = serving.run("token", "create", "--as", "ci", "--json").json
    serving.configure({}, settings={**BEARER, "unknown": 1})
    assert serving.run("token", "revoke", made["id"]).code == 0

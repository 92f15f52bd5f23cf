"""What commands tell the local user of the logins of persons who come over HTTP, and how they are removed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.identity import Principal
from dynamic_mcp.oauth.credentials import Login, Token
from dynamic_mcp.oauth.store import LoginStore, key, list_persons
from dynamic_mcp.observe.proxies import ProxyStatus
from tests.cli.commands import CliRunner
from tests.cli.test_status import group, publish, shown

URL = "https://far.test/mcp"
FAR = Remote(kind=None, url=URL, headers={})
ANN, BOB, OTHER_ANN = Principal("token", "ann"), Principal("token", "bob"), Principal("https://idp.test", "ann")
AUTH = {"http": {"auth": [{"kind": "bearer", "tokens": [{"token": "x" * 43, "subject": "ann"}]}]}}


@pytest.fixture
def folder(cli: CliRunner, state: Path) -> Path:
    """The logins of a config with two servers: of the local user, and of persons."""
    cli.configure({"far": {"url": URL}, "other": {"url": "https://other.test/mcp"}})
    folder = state / "logins"
    for person, lifetime_s in ((None, 3600), (ANN, 3600), (BOB, -3600)):
        save(folder, person, time.time() + lifetime_s)
    return folder


def save(folder: Path, person: Principal | None, expires_at: float) -> None:
    login = Login(URL, "https://as.test", token=Token("SECRET", time.time(), expires_at), person=person)
    LoginStore(folder, replace(FAR, login_of=person)).save(login)


@pytest.mark.usefixtures("folder")
def test_status_lists_the_logins_of_all_persons_and_is_content_if_ones_own_is_good(cli: CliRunner) -> None:
    done = cli.run("auth", "status", "far", "--json")

    assert done.code == 0
    assert [(row.get("person"), row["state"]) for row in done.json] == [
        (None, "logged in"),
        ("ann", "logged in"),
        ("bob", "expired"),
    ]
    assert "SECRET" not in done.out
    assert {row.get("person_issuer") for row in done.json} == {None, "token"}
    assert "PERSON" in cli.run_on_terminal("auth", "status").out


def test_logout_of_a_person_leaves_all_others(cli: CliRunner, folder: Path) -> None:
    done = cli.run("auth", "logout", "--as", "ann")

    assert (done.code, done.err) == (0, "far, `ann`: logged out\n")
    assert list_persons(folder, FAR) == [BOB]
    assert LoginStore(folder, FAR).load() is not None
    assert cli.run("auth", "logout", "far").err == "far: logged out\n"
    assert list_persons(folder, FAR) == [BOB]


def test_who_is_meant_must_be_clear(cli: CliRunner, folder: Path) -> None:
    save(folder, OTHER_ANN, time.time() + 3600)

    asked = cli.run("auth", "logout", "--as", "ann")
    assert asked.code == 2
    assert "`https://idp.test` and `token` have a `ann` each" in asked.err
    assert len(list_persons(folder, FAR)) == 3

    assert cli.run("auth", "logout", "--as", "ann", "--issuer", "token").code == 0
    assert list_persons(folder, FAR) == [OTHER_ANN, BOB]
    assert cli.run("auth", "logout", "--as", "nobody").err == "no login of `nobody` is stored\n"
    assert cli.run("auth", "logout", "--issuer", "token").code == 2


def test_files_that_are_not_what_they_say_are_nobodys(folder: Path) -> None:
    (file,) = folder.glob(f"{key(replace(FAR, login_of=BOB))}*.json")
    file.rename(folder / f"{'0' * 40}.v1.json")
    (folder / "broken.v1.json").write_text("{", encoding="utf-8")

    assert list_persons(folder, FAR) == [ANN]
    assert list_persons(folder, replace(FAR, url="https://else.test/mcp")) == []


@pytest.mark.parametrize(
    ("server", "settings", "said"),
    [
        ({"oauth": {"shared": True}}, {}, "share one login"),
        ({"share": "all"}, AUTH, "share one login"),
        ({"share": "all"}, {}, ""),
        ({}, {}, ""),
        ({}, AUTH, "settings.http.public_url"),
        ({"oauth": {"shared": True}}, AUTH, "share one login"),
        ({"headers": {"Authorization": "Bearer ${T:-t}"}}, AUTH, ""),
        ({}, {"http": {**AUTH["http"], "public_url": "https://front.test/mcp"}}, ""),
    ],
)
def test_check_tells_which_servers_act_with_one_login_for_all_and_who_cannot_log_in(
    cli: CliRunner, server: dict[str, object], settings: dict[str, object], said: str
) -> None:
    cli.configure({"far": {"url": URL, **server}}, settings=settings)
    done = cli.run("check", "--json")

    found = [f"{each['where']} {each['what']}" for each in done.json if each["level"] in ("note", "warning")]
    about = [each for each in found if "login" in each or "log in" in each]
    assert done.code == 0
    assert [said in each for each in about] == ([True] if said else [])


def test_status_shows_whose_login_a_group_has_and_not_hundreds_of_them(cli: CliRunner, state: Path) -> None:
    persons = [group("far", person=f"p{number}", person_issuer="token") for number in range(60)]
    publish(state, ProxyStatus(config="x", kind="http", groups=[*persons, group("near")]))

    text = "\n".join(shown(cli))

    assert "far (p0)" in text
    assert "far (p49)" in text
    assert "far (p50)" not in text
    assert "and 10 more with personal logins" in text
    assert text.index("near") < text.index("far (p0)")

"""Which registry is asked: what npm, uv and pip are told, in the order in which they heed it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from dynamic_mcp.features.provenance.packages import PackageUse, find_package
from dynamic_mcp.features.provenance.sources import NPM, PYPI, Offline, npm_source, python_sources


def use_of(line: str) -> PackageUse:
    use = find_package(shlex.split(line))
    assert isinstance(use, PackageUse)
    return use


def test_npm_heeds_its_scope_then_flags_variables_and_files(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".npmrc").write_text(
        "; mine\nregistry=https://user.example/\n@acme:registry = https://acme.example\n"
    )
    home = {"HOME": str(tmp_path / "home")}
    assert npm_source(use_of("npx x"), home, None).url == "https://user.example"
    assert npm_source(use_of("npx @acme/x"), home, None).url == "https://acme.example"
    (tmp_path / ".npmrc").write_text("registry=https://project.example\n")
    assert npm_source(use_of("npx x"), home, tmp_path).url == "https://project.example"
    variable = {**home, "NPM_CONFIG_REGISTRY": "https://variable.example"}
    assert npm_source(use_of("npx x"), variable, tmp_path).url == "https://variable.example"
    flag = use_of("npx --registry=https://flag.example x")
    assert npm_source(flag, variable, tmp_path).url == "https://flag.example"
    assert npm_source(use_of("npx x"), {"HOME": "/nonexistent"}, None).url == NPM


def test_a_login_of_npm_is_for_its_place_alone(tmp_path: Path) -> None:
    (tmp_path / ".npmrc").write_text(
        "//r.example/a/:_authToken=${TOKEN}\n//r.example/:_auth=YTpi\nregistry=https://r.example/a/b/\n"
    )
    environment = {"HOME": str(tmp_path), "TOKEN": "t"}
    assert npm_source(use_of("npx x"), environment, None).headers == {"authorization": "Bearer t"}
    other = use_of("npx --registry=https://r.example/c x")
    assert npm_source(other, environment, None).headers == {"authorization": "Basic YTpi"}
    elsewhere = use_of("npx --registry=https://r.example.evil/a x")
    assert npm_source(elsewhere, environment, None).headers == {}


def test_a_directory_of_a_stranger_gets_no_secret(tmp_path: Path) -> None:
    """It may name the registry, as it may for npm, and neither a login nor a variable of the user."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".npmrc").write_text("//mine.example/:_authToken=mine\n")
    lines = ("registry=https://evil.example/${TOKEN}", "//evil.example/:_authToken=${TOKEN}", "userconfig=/etc/x")
    (tmp_path / ".npmrc").write_text("\n".join(lines))
    environment = {"HOME": str(tmp_path / "home"), "TOKEN": "s3cret"}
    source = npm_source(use_of("npx x"), environment, tmp_path)
    assert source.url == "https://evil.example/${TOKEN}"
    assert source.headers == {}


def test_uv_asks_its_further_indexes_before_the_default(tmp_path: Path) -> None:
    folder = tmp_path / "uv"
    folder.mkdir()
    (folder / "uv.toml").write_text(
        '[[index]]\nurl = "https://file.example/simple"\n'
        '[[index]]\nurl = "https://default.example/simple"\ndefault = true\n'
    )
    environment = {"HOME": "/nonexistent", "XDG_CONFIG_HOME": str(tmp_path), "UV_INDEX": "a=https://a.example"}
    urls = [each.url for each in python_sources(use_of("uvx x"), environment)]
    assert urls == ["https://a.example", "https://file.example/simple", "https://default.example/simple"]
    default = use_of("uvx --default-index https://flag.example x")
    assert python_sources(default, environment)[-1].url == "https://flag.example"
    assert [each.url for each in python_sources(use_of("uvx x"), {"HOME": "/nonexistent"})] == [PYPI]


def test_a_user_in_the_url_of_an_index_becomes_a_header_and_is_not_in_its_url() -> None:
    environment = {"HOME": "/nonexistent", "UV_INDEX_URL": "https://ada:p%40ss@r.example:8443/simple/"}
    (source,) = python_sources(use_of("uvx x"), environment)
    assert source.url == "https://r.example:8443/simple"
    assert source.headers == {"authorization": "Basic YWRhOnBAc3M="}
    environment = {"HOME": "/nonexistent", "npm_config_registry": "https://ada:p%40ss@r.example:8443/npm/"}
    registry = npm_source(use_of("npx x"), environment, None)
    assert registry.url == "https://r.example:8443/npm"
    assert registry.headers == source.headers
    (broken,) = python_sources(use_of("uvx x"), {"HOME": "/nonexistent", "UV_INDEX_URL": "https://a:s3cret@[x/"})
    assert "s3cret" not in broken.url


@pytest.mark.parametrize(
    ("line", "variable"), [("npx x", "npm_config_offline"), ("uvx x", "UV_OFFLINE"), ("pipx run x", "PIP_NO_INDEX")]
)
def test_what_is_set_to_be_offline_is_not_asked(line: str, variable: str) -> None:
    environment = {"HOME": "/nonexistent", variable: "true"}
    with pytest.raises(Offline):
        npm_source(use_of(line), environment, None) if "npx" in line else python_sources(use_of(line), environment)


@pytest.mark.parametrize("text", ["= \n[[[", "\udcff", "registry", "a=" * 1000])
def test_files_of_rubbish_say_nothing(tmp_path: Path, text: str) -> None:
    for name in (".npmrc", "uv/uv.toml", "pip/pip.conf"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(text.encode(errors="surrogateescape"))
    environment = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    assert npm_source(use_of("npx x"), environment, None).url == NPM
    assert python_sources(use_of("uvx x"), environment)[0].url == PYPI
    assert python_sources(use_of("pipx run x"), environment)[0].url == PYPI

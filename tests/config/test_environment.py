from pathlib import Path

import pytest

from dynamic_mcp.config.environment import inherit_variables, merge, read_env_file, resolve_path
from dynamic_mcp.config.types import Inherit


def test_a_program_gets_what_it_needs_to_run_and_no_secret() -> None:
    needed = {
        "HOME": "/home/me",
        "PATH": "/bin",
        "LC_ALL": "C.UTF-8",
        "XDG_RUNTIME_DIR": "/run/user/1",
        "https_proxy": "http://proxy:3128",
        "NO_PROXY": "localhost",
        "SSL_CERT_FILE": "/etc/ssl/cert.pem",
        "DISPLAY": ":0",
    }
    secret = {
        "GITHUB_TOKEN": "t",
        "AWS_SECRET_ACCESS_KEY": "k",
        "path": "/evil",
        "LD_PRELOAD": "x.so",
        "PATHEXT": ".COM",
    }

    assert inherit_variables(needed | secret, "safe", platform="linux") == needed


def test_a_list_adds_names_and_globs_to_the_safe_ones() -> None:
    ours = {"PATH": "/bin", "AWS_REGION": "eu", "AWS_PROFILE": "me", "GITHUB_TOKEN": "t", "aws_x": "x"}

    theirs = inherit_variables(ours, ("AWS_*", "EDITOR"), platform="linux")

    assert theirs == {"PATH": "/bin", "AWS_REGION": "eu", "AWS_PROFILE": "me"}


def test_a_name_after_an_exclamation_mark_is_held_back_whatever_its_case_but_never_what_is_needed_to_run() -> None:
    ours = {"PATH": "/bin", "SSL_CERT_FILE": "/c", "AWS_PROFILE": "me", "GH_TOKEN": "t", "my_token": "t"}

    theirs = inherit_variables(ours, ("!*TOKEN*", "*", "!*CERT*"), platform="linux")

    assert theirs == {"PATH": "/bin", "SSL_CERT_FILE": "/c", "AWS_PROFILE": "me"}
    assert inherit_variables(ours, ("!*TOKEN*",), platform="linux") == {"PATH": "/bin", "SSL_CERT_FILE": "/c"}


@pytest.mark.parametrize("choice", ["safe", "all", ("*",)])
def test_a_function_that_a_shell_exported_is_never_inherited(choice: Inherit) -> None:
    ours = {"HOME": "() { :; }; echo gotcha", "PATH": "/bin"}

    assert inherit_variables(ours, choice, platform="linux") == {"PATH": "/bin"}


def test_all_is_everything_else() -> None:
    ours = {"GITHUB_TOKEN": "t", "lower": "1"}

    assert inherit_variables(ours, "all", platform="linux") == ours


def test_names_differ_in_case_on_windows_without_being_different() -> None:
    ours = {"Path": "C:\\bin", "SystemRoot": "C:\\Windows", "ProgramFiles(x86)": "C:\\P", "My_Key": "k", "Token": "t"}

    theirs = inherit_variables(ours, ("my_*",), platform="win32")

    assert theirs == {name: value for name, value in ours.items() if name != "Token"}


def test_a_later_layer_wins() -> None:
    layers = [{"A": "1", "B": "1"}, {"B": "2"}, {"B": "3", "C": "3"}]

    assert merge(layers, platform="linux") == {"A": "1", "B": "3", "C": "3"}


def test_a_later_layer_wins_on_windows_in_its_own_spelling() -> None:
    layers = [{"Path": "C:\\old"}, {"PATH": "C:\\new"}]

    assert merge(layers, platform="win32") == {"PATH": "C:\\new"}
    assert merge(layers, platform="darwin") == {"Path": "C:\\old", "PATH": "C:\\new"}


def test_an_env_file_is_taken_literally(tmp_path: Path) -> None:
    file = tmp_path / "x.env"
    file.write_text(
        "\ufeff# a comment\nA=one\nexport B='two words'\nC=${A}\nD=\"$(id)\"\nEMPTY=\nNO_VALUE\n", encoding="utf-8"
    )

    assert read_env_file(file) == {"A": "one", "B": "two words", "C": "${A}", "D": "$(id)", "EMPTY": ""}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x.env", "/base/x.env"),
        ("../x", "/base/../x"),
        ("/x", "/x"),
        ("~", "/home/me"),
        ("~/x", "/home/me/x"),
        ("~//x", "/home/me/x"),
        ("~you/x", "/base/~you/x"),
        ("a/~", "/base/a/~"),
        ("", "/base"),
    ],
)
def test_a_path_starts_at_home_or_at_its_base(text: str, expected: str) -> None:
    assert resolve_path(text, {"HOME": "/home/me"}, base=Path("/base")) == Path(expected)


def test_without_a_home_a_tilde_is_a_name() -> None:
    assert resolve_path("~/x", {}, base=Path("/base")) == Path("/base/~/x")
    assert resolve_path("~/x", {"USERPROFILE": "/users/me"}, base=Path("/base")) == Path("/users/me/x")

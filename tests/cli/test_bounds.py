"""Whatever file a person names, a command says soon what is wrong with it, and reads no more than a bound."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.cli.commands import CliRunner, run_with_memory_limit


@pytest.mark.posix_only("pipes and devices are files on POSIX systems only, and links need a privilege on Windows")
@pytest.mark.parametrize("name", ["/dev/zero", "fifo", "link"])
def test_a_config_that_is_no_file_is_refused(cli: CliRunner, name: str) -> None:
    os.mkfifo(cli.folder / "fifo")
    (cli.folder / "link").symlink_to("/dev/zero")
    done = run_with_memory_limit(cli, "check", name)
    assert done.code == 2
    assert "cannot be read: not a regular file" in done.json[0]["what"]


@pytest.mark.posix_only("pipes and devices are files on POSIX systems only, and links need a privilege on Windows")
def test_an_env_file_without_an_end_is_named(cli: CliRunner) -> None:
    cli.configure({"a": {"command": "true", "env_file": "/dev/zero"}})
    done = run_with_memory_limit(cli, "check")
    assert "mcpServers.a.env_file" in done.out
    assert "cannot read `/dev/zero`: not a regular file" in done.out


@pytest.mark.posix_only("pipes and devices are files on POSIX systems only, and links need a privilege on Windows")
def test_settings_that_lead_to_a_pipe_do_not_keep_install_waiting(cli: CliRunner) -> None:
    os.mkfifo(cli.folder / "fifo")
    (cli.folder / ".cursor").mkdir()
    (cli.folder / ".cursor" / "mcp.json").symlink_to(cli.folder / "fifo")
    done = run_with_memory_limit(cli, "install", "cursor", "--scope", "project")
    assert done.code == 1
    assert "not a regular file" in done.err


@pytest.mark.posix_only("pipes and devices are files on POSIX systems only, and links need a privilege on Windows")
def test_a_config_may_come_from_a_pipe_of_the_shell(cli: CliRunner) -> None:
    program = " ".join(cli.command("tools", "--detail", "names", "-c", "/dev/stdin"))
    done = subprocess.run(
        ["sh", "-c", f"cat {cli.config} | {program}"],
        capture_output=True,
        timeout=60,
        check=False,
        cwd=cli.folder,
    )
    assert done.returncode == 0, done.stderr
    assert {"group": "full", "name": "echo"} in json.loads(done.stdout)


def test_arguments_on_stdin_have_a_bound(cli: CliRunner) -> None:
    done = cli.run("call", "full", "echo", "-", stdin=bytes(65 << 20))
    assert (done.code, done.err) == (2, "error: stdin is larger than 64 MiB\n")

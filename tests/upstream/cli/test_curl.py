"""The pack of curl, against the real program and a web server on loopback: what it reads, and what no tool does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dynamic_mcp.packs import library
from dynamic_mcp.packs.model import Command
from dynamic_mcp.upstream.cli.argv import build
from tests.fakes import Client, Json, text_of
from tests.program import BOUND_S
from tests.upstream.cli.programs import require, serve
from tests.upstream.cli.site import Site

SECRET = "the secret"


@contextlib.asynccontextmanager
async def tools(folder: Path, *, validate: str = "off", **cli: Json) -> AsyncIterator[Client]:
    """A client of all commands of curl, in the directory `work`, at home in the folder."""
    require("curl")
    (folder / "work").mkdir(exist_ok=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    entry: Json = {"use": "curl", "commands": ["*"], "cwd": {"roots": ["work"]}, **cli}
    async with serve(folder, entry, environment=environment, validate=validate) as client:
        yield client


async def curl(folder: Path, *words: str) -> str:
    """What the program itself writes, started in the directory `work` as a person would."""
    program = require("curl")
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    (folder / "work").mkdir(exist_ok=True)

    def run() -> str:
        command = [program, *words]
        return subprocess.run(
            command, cwd=folder / "work", env=environment, capture_output=True, text=True, timeout=BOUND_S
        ).stdout

    return await asyncio.to_thread(run)


async def output_of(client: Client, tool: str, arguments: Json) -> str:
    """The output of a call that works."""
    result = await client.call("it", tool, arguments)
    assert not result.get("isError"), text_of(result)
    return str(result["structuredContent"]["stdout"])


async def test_curl_gets_pages_and_headers(tmp_path: Path) -> None:
    async with Site() as site, tools(tmp_path, validate="strict") as client:
        assert await output_of(client, "curl_get", {"url": f"{site.url}/a?b=[1-3]"}) == "this is /a?b=[1-3]\n"
        asked: Json = {"url": f"{site.url}/", "header": ["Accept: text/html", "X-Api-Key: @k"], "include": True}
        assert "200 OK" in await output_of(client, "curl_get", {**asked, "write_out": "%{http_code}\\n"})
        assert "Accept: text/html" in site.requests[-1]
        assert "X-Api-Key: @k" in site.requests[-1]
        assert "text/plain" in await output_of(client, "curl_head", {"url": site.url})
        followed: Json = {"url": f"{site.url}/to?/b", "location": True, "max_redirs": 1}
        assert await output_of(client, "curl_get", followed) == "this is /b\n"

    assert [each.split()[0] for each in site.requests] == ["GET", "GET", "HEAD", "GET", "GET"]


async def test_an_error_of_the_server_is_one_where_that_is_asked_for(tmp_path: Path) -> None:
    async with Site() as site, tools(tmp_path) as client:
        assert await output_of(client, "curl_get", {"url": f"{site.url}/missing"}) == "this is /missing\n"
        failed = await client.call("it", "curl_get", {"url": f"{site.url}/missing", "fail_with_body": True})

    assert failed["isError"]
    assert failed["structuredContent"]["exitCode"] == 22
    assert failed["structuredContent"]["stdout"] == "this is /missing\n"


@pytest.mark.parametrize("command", library.read_shipped("curl").commands, ids=lambda each: each.name)
async def test_the_program_knows_every_flag(tmp_path: Path, command: Command) -> None:
    values: Json = {
        "header": ["Accept: a/b"],
        "range": "0-1",
        "write_out": "%{json}",
        "user_agent": "a",
        "referer": "b",
    }
    async with Site() as site:
        for flag in command.flags:
            given = {"boolean": True, "integer": 1, "number": 1}.get(flag.type, values.get(flag.argument))
            words = build(command, {"url": site.url, flag.argument: given}).argv
            await curl(tmp_path, *library.read_shipped("curl").fixed, *words)
            if flag.argument not in ("ipv6", "tlsv1_3"):
                assert len(site.requests) == 1, flag.name
            site.requests.clear()


# --- what curl can do, and no tool does --------------------------------------------------------------------------


async def refuses(client: Client, site: Site, arguments: Json) -> str:
    """Check that a call with these arguments starts nothing; return why."""
    before = len(site.requests)
    for tool in ("curl_get", "curl_head"):
        result = await client.call("it", tool, {"url": site.url, **arguments})
        assert result["isError"], arguments
        assert "exitCode" not in result.get("structuredContent", {}), text_of(result)
        assert SECRET not in text_of(result)
    assert len(site.requests) == before
    return text_of(result)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file that nobody is to read."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "secret").write_text(SECRET)
    return tmp_path / "work" / "secret"


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (("--upload-file", "secret"), {"upload_file": "secret"}),
        (("--data", "@secret"), {"data": "@secret"}),
        (("--data-binary", "@secret"), {"data_binary": "@secret"}),
        (("--form", "a=@secret"), {"form": ["a=@secret"]}),
        (("--header", "@headers"), {"header": ["@headers"]}),
        (("--cookie", "cookies"), {"cookie": "cookies"}),
        (("--config", "config"), {"config": "config"}),
        (("--netrc-file", "netrc"), {"netrc_file": "netrc"}),
    ],
)
async def test_no_file_is_sent(tmp_path: Path, secret: Path, words: tuple[str, ...], arguments: Json) -> None:
    work = secret.parent
    (work / "headers").write_text(f"X-Header: {SECRET}\n")
    (work / "cookies").write_text(f"127.0.0.1\tFALSE\t/\tFALSE\t0\tname\t{SECRET}\n")
    (work / "config").write_text(f'user-agent = "{SECRET}"\n')
    (work / "netrc").write_text("machine 127.0.0.1 login the password secret\n")
    async with Site() as site:
        await curl(tmp_path, "--silent", *words, site.url)
        assert SECRET in site.requests[-1] or "Authorization: Basic" in site.requests[-1]

        for at_files in (False, True):
            async with tools(tmp_path, at_files=at_files) as client:
                assert await refuses(client, site, arguments)


@pytest.mark.parametrize(
    "words",
    [
        ("--output", "stolen"),
        ("--dump-header", "stolen"),
        ("--cookie-jar", "stolen"),
        ("--trace", "stolen"),
        ("--trace-ascii", "stolen"),
        ("--stderr", "stolen"),
        ("--libcurl", "stolen"),
        ("--hsts", "stolen"),
        ("--alt-svc", "stolen"),
        ("--etag-save", "stolen"),
        ("--remote-name", None),
        ("--remote-name-all", None),
    ],
)
async def test_no_file_is_written(tmp_path: Path, words: tuple[str, str | None]) -> None:
    async with Site() as site:
        await curl(tmp_path, "--silent", *filter(None, words), f"{site.url}/stolen")
        if words[0] not in ("--hsts", "--alt-svc"):  # written after answers over TLS alone
            assert (tmp_path / "work" / "stolen").exists()
        assert site.requests
        (tmp_path / "work" / "stolen").unlink(missing_ok=True)

        async with tools(tmp_path, at_files=True) as client:
            await refuses(client, site, {words[0].strip("-").replace("-", "_"): words[1] or True})
            for url in (f"--output={words[1]}", f"-ostolen{site.url}", f"{site.url}/ -o stolen"):
                await refuses(client, site, {"url": url})
            await output_of(client, "curl_get", {"url": f"{site.url}/stolen"})

    assert not (tmp_path / "work" / "stolen").exists()


@pytest.mark.parametrize("text", ["%output{stolen}x", "%{onerror}", "@format", "x%", "%header{date}"])
async def test_what_is_printed_at_the_end_is_no_way_to_files(tmp_path: Path, text: str) -> None:
    async with Site() as site:
        (tmp_path / "work").mkdir()
        (tmp_path / "work" / "format").write_text(SECRET)
        assert SECRET in await curl(tmp_path, "--silent", "--write-out", "@format", site.url)

        async with tools(tmp_path, at_files=True) as client:
            assert "match" in await refuses(client, site, {"write_out": text})


async def test_the_users_settings_do_not_count(tmp_path: Path) -> None:
    (tmp_path / ".curlrc").write_text("output = stolen\n")
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login a password b\n")
    async with Site() as site:
        await curl(tmp_path, "--silent", "--netrc", site.url)
        assert (tmp_path / "work" / "stolen").exists()
        assert "Authorization" in site.requests[-1]
        (tmp_path / "work" / "stolen").unlink()

        async with tools(tmp_path) as client:
            assert await output_of(client, "curl_get", {"url": site.url}) == "this is /\n"
            await refuses(client, site, {"netrc": True})

    assert not (tmp_path / "work" / "stolen").exists()
    assert "Authorization" not in site.requests[-1]


@pytest.mark.parametrize("scheme", ["file", "FILE", "ftp", "gopher", "dict", "telnet", "ldap", "smb", "scp", "tftp"])
async def test_there_are_no_protocols_but_those_of_the_web(tmp_path: Path, secret: Path, scheme: str) -> None:
    async with Site() as site:
        assert await curl(tmp_path, "--silent", f"file://{secret}") == SECRET
        async with tools(tmp_path) as client:
            for url in (f"{scheme}://{secret}", f"{scheme}://{site.address}/", f"{scheme}:{secret}", str(secret)):
                assert "match" in await refuses(client, site, {"url": url})

            host = "" if scheme.lower() == "file" else site.address
            redirected: Json = {"url": f"{site.url}/to?{scheme}://{host}{secret}", "location": True}
            result = await client.call("it", "curl_get", redirected)

    assert result["structuredContent"]["exitCode"] == 1
    assert SECRET not in text_of(result)
    assert len(site.requests) == 1


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1@HOST/",
        "http://user:password@HOST/",
        "http://HOST\\@127.0.0.1/",
        "http://HOST/ http://HOST/",
        "http://HOST/\r\nX: y",
        "http://",
        "HOST",
        "//HOST/",
        "-Kconfig",
        "--next",
        "-",
        "@urls",
    ],
)
async def test_an_address_is_one_address_and_nothing_else(tmp_path: Path, url: str) -> None:
    async with Site() as site, tools(tmp_path, at_files=True) as client:
        assert "match" in await refuses(client, site, {"url": url.replace("HOST", site.address)})


async def test_no_address_stands_for_several(tmp_path: Path) -> None:
    async with Site() as site:
        await curl(tmp_path, "--silent", f"{site.url}/{{a,b}}", f"{site.url}/[1-2]")
        assert len(site.requests) == 4
        site.requests.clear()

        async with tools(tmp_path) as client:
            for path in ("{a,b}", "[1-2]"):
                assert await output_of(client, "curl_get", {"url": f"{site.url}/{path}"}) == f"this is /{path}\n"

    assert len(site.requests) == 2


@pytest.mark.parametrize(
    ("words", "method"),
    [
        (("--request", "DELETE"), "DELETE"),
        (("--data", "x"), "POST"),
        (("--data-raw", "x"), "POST"),
        (("--data-urlencode", "x"), "POST"),
        (("--json", "{}"), "POST"),
        (("--form-string", "a=b"), "POST"),
    ],
)
async def test_nothing_is_written_to_a_server(tmp_path: Path, words: tuple[str, str], method: str) -> None:
    async with Site() as site:
        await curl(tmp_path, "--silent", *words, site.url)
        assert site.requests[-1].startswith(method)

        async with tools(tmp_path) as client:
            await refuses(client, site, {words[0].strip("-").replace("-", "_"): words[1]})


@pytest.mark.parametrize(
    "header",
    [
        "X-HTTP-Method-Override: DELETE",
        "X-Method-Override: PUT",
        "Host: elsewhere",
        "Content-Length: 5",
        "Transfer-Encoding: chunked",
        "Connection: upgrade",
        "Accept: a\r\nHost: elsewhere",
        "Accept: a\nX: y",
        "Accept;",
        "Accept:",
        "@headers",
        "-",
    ],
)
async def test_no_header_asks_for_more_than_reading(tmp_path: Path, header: str) -> None:
    async with Site() as site:
        if "\n" not in header and header.partition(": ")[2]:
            await curl(tmp_path, "--silent", "--max-time", "1", "--header", header, site.url)
            assert header in site.requests[-1] if site.requests else "Length" in header
        async with tools(tmp_path, at_files=True) as client:
            assert "match" in await refuses(client, site, {"header": [header]})


@pytest.mark.parametrize("flag", ["--proxy", "--preproxy", "--socks5", "--connect-to", "--resolve", "--unix-socket"])
async def test_no_call_leads_a_request_elsewhere(tmp_path: Path, flag: str) -> None:
    async with Site() as site:
        value = {
            "--connect-to": f"::{site.address}",
            "--resolve": f"nowhere.invalid:{site.address.rpartition(':')[2]}:127.0.0.1",
        }.get(flag, f"http://{site.address}")
        port = site.address.rpartition(":")[2]
        await curl(tmp_path, "--silent", "--max-time", "2", flag, value, f"http://nowhere.invalid:{port}/")
        if flag in ("--proxy", "--connect-to", "--resolve"):
            assert "nowhere.invalid" in site.requests[-1]

        async with tools(tmp_path) as client:
            await refuses(client, site, {flag.strip("-").replace("-", "_"): value})


async def test_answers_are_bounded(tmp_path: Path) -> None:
    async with Site() as site:
        assert len(await curl(tmp_path, "--silent", f"{site.url}/large")) == 10_000_001
        async with tools(tmp_path) as client:
            large = await client.call("it", "curl_get", {"url": f"{site.url}/large"})
            endless = await client.call("it", "curl_get", {"url": f"{site.url}/endless"})
            too_much = await client.call("it", "curl_get", {"url": site.url, "max_filesize": 50_000_001})

    assert large["structuredContent"]["exitCode"] == 63
    assert endless["isError"]
    assert too_much["isError"]
    assert "at most" in text_of(too_much)


async def test_what_follows_redirects_does_not_do_so_forever(tmp_path: Path) -> None:
    async with Site() as site, tools(tmp_path) as client:
        target = site.url
        for _ in range(3):
            target = f"{site.url}/to?{target}"
        result = await client.call("it", "curl_get", {"url": target, "location": True, "max_redirs": 2})

    assert result["structuredContent"]["exitCode"] == 47
    assert len(site.requests) == 3

"""The pack of aws, against the real program and a service on loopback: what it asks, and what no tool does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from dynamic_mcp.packs import library
from dynamic_mcp.packs.model import Command, Flag
from dynamic_mcp.upstream.cli.argv import BadArguments, build
from tests.fakes import Client, Json, text_of
from tests.program import BOUND_S
from tests.upstream.cli.programs import require, serve
from tests.upstream.cli.site import Site

if sys.platform == "win32":
    pytest.skip("the dangers are scripts of a Unix shell", allow_module_level=True)

SECRET = "the-secret"
_XML = '<R xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><reservationSet/><GetCallerIdentityResult><Account>1</Account></GetCallerIdentityResult></R>'


def answer(request: str) -> str | None:
    """What the services answer: nothing found."""
    if request.startswith("GET /fetched"):
        return SECRET
    return '{"events": []}' if "X-Amz-Target" in request else _XML


def environment(folder: Path, site: Site) -> dict[str, str]:
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "eu-west-1"}
    network = {"AWS_ENDPOINT_URL": site.url, "AWS_MAX_ATTEMPTS": "1", "AWS_EC2_METADATA_DISABLED": "true"}
    return {"PATH": os.environ["PATH"], "HOME": str(folder), **keys, **network}


@contextlib.asynccontextmanager
async def tools(folder: Path, site: Site, **cli: Json) -> AsyncIterator[Client]:
    """A client of all commands of aws, whose services are at the site."""
    require("aws")
    entry: Json = {"use": "aws", "commands": ["*"], "env": ["AWS_ENDPOINT_URL", "AWS_MAX_ATTEMPTS"], **cli}
    async with serve(folder, entry, environment=environment(folder, site), validate="off") as client:
        yield client


async def aws(folder: Path, site: Site, *words: str) -> str:
    """What the program itself writes, started in the folder as a person would."""
    program = require("aws")

    def run() -> str:
        done = subprocess.run(
            [program, *words],
            cwd=folder,
            env=environment(folder, site),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BOUND_S,
        )
        return done.stdout + done.stderr

    return await asyncio.to_thread(run)


def body_of(request: str) -> str:
    return request.partition("\r\n\r\n")[2]


@pytest.mark.full
async def test_aws_asks_the_services(tmp_path: Path) -> None:
    async with Site(answer) as site, tools(tmp_path, site) as client:
        who = await client.call("it", "aws_sts_get_caller_identity", {"output": "json"})
        assert not who.get("isError"), text_of(who)
        given: Json = {
            "instance_ids": '["i-1", "i-2"]',
            "filters": '[{"Name": "tag:a", "Values": ["file://secret"]}]',
            "query": "Reservations[]",
            "output": "json",
        }
        found = await client.call("it", "aws_ec2_describe_instances", given)
        assert text_of(found).strip() == "[]"
        asked = parse_qs(body_of(site.requests[-1]))
        assert asked["InstanceId.2"] == ["i-2"]
        assert asked["Filter.1.Value.1"] == ["file://secret"]
        logged: Json = {"log_group_name": "/aws/lambda/a", "filter_pattern": "-x @y", "region": "us-east-1"}
        assert not (await client.call("it", "aws_logs_filter_log_events", logged)).get("isError")

    sent = json.loads(body_of(site.requests[-1]))
    assert sent == {"logGroupName": "/aws/lambda/a", "filterPattern": "-x @y"}
    assert "/us-east-1/logs/" in site.requests[-1]


# --- files and addresses in place of values ----------------------------------------------------------------------


def texts() -> Iterator[tuple[Command, Flag]]:
    for command in library.read_shipped("aws").commands:
        for flag in command.flags:
            if flag.type not in ("boolean", "integer", "number", "enum"):
                yield command, flag


def test_no_flag_takes_a_file_or_an_address_for_its_value() -> None:
    needed = {"integer": 1, "number": 1, "string": "abc", "boolean": True}
    count = 0
    for command, flag in texts():
        rest = {
            each.argument: each.values[0] if each.values else needed[each.type]
            for each in command.flags
            if each.required and each is not flag
        }
        for value in ("file://x", "fileb://x", "http://x/", "https://x/", "Name@=file://x,Values=a"):
            if "@=" in value and flag.pattern is None:
                continue  # a plain text, where it has no meaning
            with pytest.raises(BadArguments, match="match"):
                build(command, {**rest, flag.argument: value}, at_files=True)
            count += 1
    assert count > 2000


@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "tool", "arguments"),
    [
        (
            ("ec2", "describe-instances", "--instance-ids=file://secret"),
            "aws_ec2_describe_instances",
            {"instance_ids": "file://secret"},
        ),
        (
            ("ec2", "describe-instances", "--filters=Name@=file://secret,Values=a"),
            "aws_ec2_describe_instances",
            {"filters": "Name@=file://secret,Values=a"},
        ),
        (
            ("logs", "filter-log-events", "--log-group-name=a", "--filter-pattern=file://secret"),
            "aws_logs_filter_log_events",
            {"log_group_name": "a", "filter_pattern": "file://secret"},
        ),
        (
            ("ec2", "describe-instances", "--cli-input-json=file://input"),
            "aws_ec2_describe_instances",
            {"cli_input_json": "file://input"},
        ),
    ],
)
async def test_no_file_is_sent(tmp_path: Path, words: tuple[str, ...], tool: str, arguments: Json) -> None:
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "input").write_text(json.dumps({"InstanceIds": [SECRET]}))
    async with Site(answer) as site:
        await aws(tmp_path, site, *words)
        sent = body_of(site.requests[-1])
        assert SECRET in sent or parse_qs(sent).get("InstanceId.1") == [SECRET[0]]
        site.requests.clear()

        async with tools(tmp_path, site, at_files=True) as client:
            refused = await client.call("it", tool, arguments)

    assert refused["isError"]
    assert site.requests == []


@pytest.mark.full
async def test_no_address_is_fetched(tmp_path: Path) -> None:
    async with Site(answer) as site:
        address = f"{site.url}/fetched"
        await aws(tmp_path, site, "ec2", "describe-instances", f"--instance-ids={address}")
        if not site.requests[0].startswith("GET /fetched"):
            pytest.skip("version 1 of aws is not installed")
        site.requests.clear()

        async with tools(tmp_path, site) as client:
            for given in ({"instance_ids": address}, {"filters": address}, {"starting_token": address}):
                assert (await client.call("it", "aws_ec2_describe_instances", given))["isError"]

    assert site.requests == []


# --- other credentials, other places, programs --------------------------------------------------------------------


@pytest.mark.full
async def test_no_call_chooses_whose_credentials_are_used(tmp_path: Path) -> None:
    mark = tmp_path / "it-ran"
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch '{mark}'\n")
    evil.chmod(0o755)
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text(f"[profile evil]\ncredential_process = {evil}\n")
    async with Site(answer) as site:
        await aws(tmp_path, site, "sts", "get-caller-identity", "--profile", "evil")
        assert mark.exists()
        mark.unlink()
        site.requests.clear()

        async with tools(tmp_path, site) as client:
            assert (await client.call("it", "aws_sts_get_caller_identity", {"profile": "evil"}))["isError"]
            assert (await client.call("it", "aws_sts_get_caller_identity", {"region": "--profile=evil"}))["isError"]

    assert site.requests == []
    assert not mark.exists()


@pytest.mark.full
@pytest.mark.parametrize(
    ("flag", "value"),
    [
        *(("endpoint-url", "http://127.0.0.1:1"), ("ca-bundle", "ca.pem"), ("no-verify-ssl", True), ("debug", True)),
        *(("no-sign-request", True), ("generate-cli-skeleton", "input"), ("cli-read-timeout", "0")),
    ],
)
async def test_no_call_leads_a_request_elsewhere(tmp_path: Path, flag: str, value: Json) -> None:
    async with Site(answer) as site:
        words = [f"--{flag}"] if value is True else [f"--{flag}", str(value)]
        assert "Unknown options" not in await aws(tmp_path, site, "ec2", "describe-vpcs", *words)
        site.requests.clear()

        async with tools(tmp_path, site) as client:
            refused = await client.call("it", "aws_ec2_describe_vpcs", {flag.replace("-", "_"): value})

    assert "no argument" in text_of(refused)
    assert site.requests == []


@pytest.mark.full
@pytest.mark.parametrize("region", ["x.evil.com/", "us-east-1.evil.com", "eu-west-1#", "@evil", "", "EU-WEST-1", "a"])
async def test_a_region_is_no_part_of_an_address(tmp_path: Path, region: str) -> None:
    async with Site(answer) as site, tools(tmp_path, site, at_files=True) as client:
        refused = await client.call("it", "aws_ec2_describe_vpcs", {"region": region})

    assert "must match" in text_of(refused)
    assert site.requests == []


def test_no_tool_returns_a_secret_or_writes_a_file() -> None:
    names = {each.name for each in library.read_shipped("aws").commands}
    for each in (
        *("secretsmanager get-secret-value", "ssm get-parameter", "ssm get-parameters", "sts assume-role"),
        *("iam create-access-key", "ecr get-login-password", "ec2 get-password-data", "s3api get-object", "s3 cp"),
        *("lambda invoke", "lambda get-function", "kms decrypt", "sts get-session-token", "configure get"),
    ):
        assert each not in names
    assert len(names) > 100

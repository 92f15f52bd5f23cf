"""`logs`: what serving proxies write down, read by somebody else."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path

from tests.cli.commands import CliRunner
from tests.program import full, odd, running
from tests.terminal import strip_escapes
from tests.windows import is_private, log_dir


async def test_logs_show_what_a_proxy_said_and_what_its_servers_said_on_stderr(cli: CliRunner, state: Path) -> None:
    cli.configure({"full": full(), "bad": odd("exit_at_start")})
    async with running(str(cli.config)) as program:
        await program.initialize()
        await program.call("bad", "echo")
    done = cli.run("logs")
    assert (done.code, done.err) == (0, "")
    records = [json.loads(line) for line in done.out.splitlines()]
    assert {record["pid"] for record in records} == {program.process.pid}
    assert records[0]["message"].startswith("serving ")
    of_bad = [json.loads(line) for line in cli.run("logs", "bad").out.splitlines()]
    assert {record["group"] for record in of_bad} == {"bad"}
    assert "group bad on stderr: odd: ODD_TOKEN is not set" in [record["message"] for record in of_bad]
    warnings = cli.run("logs", "bad", "--level", "warning").out.splitlines()
    assert warnings
    assert {json.loads(line)["level"] for line in warnings} == {"warning"}
    assert re.search(
        r"\d\d-\d\d \d\d:\d\d:\d\d info    serving ", strip_escapes(cli.run_on_terminal("logs", width=300).out)
    )
    assert is_private(log_dir(state) / "dynamic-mcp.log")


def test_logs_since_leaves_out_what_is_older(cli: CliRunner, state: Path) -> None:
    log_dir(state).mkdir(parents=True)
    old = {"time": "2020-01-01T00:00:00.000+00:00", "level": "info", "message": "long ago"}
    (log_dir(state) / "dynamic-mcp.log").write_text(json.dumps(old) + "\nnot json\n", encoding="utf-8")
    assert "long ago" in cli.run("logs").out
    done = cli.run("logs", "--since", "1h")
    assert (done.code, done.out) == (0, "")
    assert "has no records yet" in done.err


async def test_logs_follow_across_a_rotation(cli: CliRunner, state: Path) -> None:
    log = log_dir(state) / "dynamic-mcp.log"
    log.parent.mkdir(parents=True)

    def write(message: str) -> None:
        with log.open("a") as file:
            file.write(json.dumps({"time": "2020", "level": "info", "message": message}) + "\n")

    write("first")
    process = await cli.start("logs", "--follow")
    assert process.stdout is not None
    async with asyncio.timeout(60):
        assert b"first" in await process.stdout.readline()
        write("second")
        assert b"second" in await process.stdout.readline()
        write("third, just before")
        log.rename(log.with_name("dynamic-mcp.log.1"))
        write("fourth")
        assert b"third, just before" in await process.stdout.readline()
        assert b"fourth" in await process.stdout.readline()
        process.terminate()
        await process.wait()


async def test_a_config_that_is_wrong_is_in_the_log_too(cli: CliRunner) -> None:
    cli.config.write_text("{", encoding="utf-8")
    assert cli.run(str(cli.config)).code == 2
    record = json.loads(cli.run("logs").out)
    assert record["level"] == "error"
    assert record["message"].startswith("did not start: ")


def test_the_log_on_stderr_may_be_json_and_of_another_level(cli: CliRunner) -> None:
    lines = cli.run(str(cli.config), "--log-format", "json").err.splitlines()
    assert {json.loads(line)["level"] for line in lines} == {"info"}
    assert cli.run(str(cli.config), "-q").err == ""
    assert cli.run(str(cli.config), DYNAMIC_MCP_LOG="error").err == ""
    cli.configure({}, settings={"log": {"level": "error", "file": False}})
    assert cli.run(str(cli.config)).err == ""
    assert cli.run(str(cli.config), "--log-level", "info").err != ""


def test_the_config_can_keep_the_log_out_of_files(cli: CliRunner) -> None:
    cli.configure({}, settings={"log": {"file": False}})
    assert cli.run(str(cli.config)).code == 0
    assert cli.run("logs").out == ""
    assert os.environ["XDG_STATE_HOME"]

"""Runs the commands that a page of the documentation shows, in their order, and compares what they print.

Before the commands, the page's latest config is written to `dynamic-mcp.json`. Comments before a block say the rest:

    <!-- not run: needs Docker -->             its commands are not run
    <!-- run with: time memory -->             the config is one with these servers
    <!-- meanwhile: touch updated -->          a shell command that is run before
    <!-- meanwhile: cursor calls files move_file {"source": "a"} -->      a call by an AI tool, or with a token

Of what a command prints, the lines that are shown must be there, in this order. In them, `…` is any text, a number
any number, and an id such as `7F3K2M` any id, which stands for the same id in all that follows.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import socket
import ssl
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests import own_process
from tests.documents import JSON_LANGUAGES, SHELL_LANGUAGES, Block, find_blocks
from tests.journeys.remote_server import free_port
from tests.reverse_proxies import Site
from tests.terminal import open_terminal

STAND_IN = Path(__file__).parent / "upstreams" / "published.py"
SERVERS: dict[str, dict[str, Any]] = {  # Any: JSON
    "time": {"description": "Clocks", "command": "uvx", "args": ["mcp-server-time"]},
    "git": {"description": "History and changes of a repository", "command": "uvx", "args": ["mcp-server-git"]},
    "memory": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"]},
    "files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "."]},
}
_PROGRAMS = ("npx", "uvx", "postgres-mcp", "tracker-mcp", "weather-mcp")
_ADDRESS = "127.0.0.1:8808"
# `status` shows counts up to two seconds late.
_COUNTED_WITHIN_S = 20.0
_ID = re.compile(r"\b(?=\w*\d)(?:[0-9A-Z]{6}|[0-9a-f]{8})\b")
# a question with its answer: of a command that reads a line, and of one that Enter answers as shown
_QUESTION = re.compile(r"^(.*(?:\[y/N\]:|\[Y/n\]:|\(n or y; Ctrl-D for none\):)) (\w)$")
_ENTER = re.compile(r"^\? (.*[?:]) \S.*$")


class Machine:
    """A machine of a person who has three AI tools, and the programs that the documents name."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home" / "you"
        self.folder = self.home / "work"
        self._bin = folder / "bin"
        self._ids: dict[str, str] = {}
        self.address = f"127.0.0.1:{free_port()}"  # where `serve --http` listens
        self.site: Site | None = None  # through which clients reach it, if not directly
        self.calls_by_url = 0
        self._entry: dict[str, Any] = {}  # Any: JSON
        self._threads = ThreadPoolExecutor()
        self._stack = contextlib.ExitStack()
        self._bin.mkdir(parents=True)
        self.folder.mkdir(parents=True)
        for name in _PROGRAMS:
            self._install(name, f'exec {sys.executable} -I -S {STAND_IN} {name} "$@"')
        self._install("dynamic-mcp", f'exec {shlex.join(own_process.OWN)} "$@"')
        self._set_up_tools()
        kept = {name: value for name, value in os.environ.items() if name in ("LANG", "LC_ALL", "TZ")}
        path = os.pathsep.join((str(self._bin), os.defpath))
        self.environment = {**kept, "HOME": str(self.home), "PATH": path, "TERM": "xterm-256color", "USER": "you"}

    def run_page(self, page: Path) -> int:
        """Run what a page shows, and return how many commands these were."""
        count = 0
        with self._stack:
            self._stack.callback(self._stop_daemon)
            for block in find_blocks(page):
                if block.language in JSON_LANGUAGES:
                    self._write_config(block.text)
                elif block.language in SHELL_LANGUAGES and block.find_mark("not run") is None:
                    count += self._run_block(block)
        return count

    def _run_block(self, block: Block) -> int:
        if names := block.find_mark("run with"):
            self._write_config(json.dumps({"mcpServers": {name: SERVERS[name] for name in names.split()}}))
        for mark in block.marks:
            if mark.startswith("meanwhile: "):
                self._do_meanwhile(mark.removeprefix("meanwhile: "))
        steps = find_steps(block)
        for command, shown in steps:
            self._run_step(command, shown)
        return len(steps)

    def _run_step(self, command: str, shown: list[str]) -> None:
        command = self._fill_in(command.removeprefix("sudo -u dynamic-mcp "))
        words = shlex.split(command, comments=True)
        if words[:2] == ["dynamic-mcp", "serve"]:
            self._serve(words[1:], shown)
            return
        if words[0] != "dynamic-mcp" or re.search(r"[|<>]|\$\(|&&", command):
            if shutil.which(words[0], path=self.environment["PATH"]) is None:
                pytest.skip(f"{words[0]} is not installed")
            done = subprocess.run(
                ["sh", "-c", command],
                env=self.environment,
                cwd=self.folder,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            code, printed = done.returncode, f"{done.stdout}\n{done.stderr}"
        else:
            code, printed = self._run_on_terminal(words[1:], shown)
            deadline = time.monotonic() + _COUNTED_WITHIN_S
            while words[1] == "status" and self._find_missing(shown, printed) and time.monotonic() < deadline:
                code, printed = self._run_on_terminal(words[1:], shown)
        self._compare(command, shown, printed)
        may_fail = any(line.startswith(("error:", "✗", "ask ", "deny ")) for line in shown)
        assert may_fail or code == 0, f"`{command}` ended with {code}:\n{printed}"

    def _run_on_terminal(self, words: list[str], shown: list[str]) -> tuple[int, str]:
        with open_terminal(*words, env=self.environment, cwd=self.folder, columns=160) as terminal:
            for line in shown:
                if question := _ENTER.match(line):
                    terminal.shows(question[1])
                    terminal.types(b"\r")
                elif question := _QUESTION.match(line):
                    terminal.shows(self._fill_in(question[1]).strip())
                    terminal.types(f"{question[2]}\r".encode())
            code = terminal.ends()
            return code, terminal.text

    def _serve(self, words: list[str], shown: list[str]) -> None:
        """Start what serves until the page ends."""
        words = [word for option in words for word in ((option, self.address) if option == "--http" else (option,))]
        log = self.folder / "serve.log"
        with log.open("wb") as file:
            none = own_process.DEVNULL
            process = own_process.start_at_once(
                *words, stdin=none, stdout=none, stderr=file, env=self.environment, cwd=self.folder
            )
        self._stack.callback(process.wait)
        self._stack.callback(process.terminate)
        host, port = self.address.split(":")
        while True:
            assert process.poll() is None, log.read_text()
            with contextlib.suppress(OSError), socket.create_connection((host, int(port))):
                break
        self._compare("serve", shown, log.read_text())

    def _do_meanwhile(self, what: str) -> None:
        if call := re.fullmatch(r"(\S+) calls (\S+) (\S+) (.*)", what):
            arguments = {"group": call[2], "name": call[3], "args": json.loads(call[4])}
            info = {"name": "cursor" if self._entry else call[1], "version": "3.0"}
            client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
            messages: list[dict[str, Any]] = [  # Any: JSON
                {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client},
                {"jsonrpc": "2.0", "method": "notifications/initialized"},
                {
                    "jsonrpc": "2.0",
                    "id": 2,
                    "method": "tools/call",
                    "params": {"name": "call_dynamic_tool", "arguments": arguments},
                },
            ]
            (self._call_by_url if self._entry else self._call_as_tool)(messages)
        elif what.startswith("dynamic-mcp "):
            self._run_step(what, [])
        else:
            subprocess.run(["sh", "-c", what], env=self.environment, cwd=self.folder, check=True, timeout=60)

    def _call_as_tool(self, messages: list[dict[str, Any]]) -> None:  # Any: JSON
        """Send messages as an AI tool that stays open; return when the last is answered, or waits for an approval."""
        own_process.run("daemon", "start", env=self.environment, cwd=self.folder)  # if the config has one
        source, sink = os.pipe()
        output = self.home / f"{messages[0]['params']['clientInfo']['name']}.log"
        with os.fdopen(source, "rb") as stdin, output.open("wb") as log:
            process = own_process.start_at_once(
                "serve", stdin=stdin, stdout=log, stderr=own_process.DEVNULL, env=self.environment, cwd=self.folder
            )
        self._stack.callback(process.wait)
        self._stack.callback(os.close, sink)
        os.write(sink, b"".join(json.dumps(each).encode() + b"\n" for each in messages))
        while b'"id":2' not in output.read_bytes() and not self._list_pending():
            assert process.poll() is None, output.read_text()

    def _call_by_url(self, messages: list[dict[str, Any]]) -> None:  # Any: JSON
        """Send messages as a client with the page's entry; return when the last waits for an approval."""
        site = self.site or Site(f"http://{self.address}", "")
        headers = {name: self._fill_in(value) for name, value in self._entry["headers"].items()}
        assert self._entry["url"] == "https://mcp.example.com/mcp"

        def call() -> None:
            accept = {"accept": "application/json, text/event-stream"}
            tls = site.tls or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            with httpx2.Client(headers={**accept, **site.headers, **headers}, verify=tls, timeout=60) as client:
                for message in messages:
                    answer = client.post(site.url, json=message).raise_for_status()
                    client.headers.update({k: v for k, v in answer.headers.items() if k == "mcp-session-id"})
                assert '"isError":true' not in answer.text, answer.text

        self.calls_by_url += 1
        future = self._threads.submit(call)
        self._stack.callback(future.result)
        while not self._list_pending():
            assert not future.done(), future.exception()

    def _list_pending(self) -> Any:  # Any: JSON
        return json.loads(own_process.run("approve", "--json", env=self.environment, cwd=self.folder).stdout)

    def _stop_daemon(self) -> None:
        own_process.run("daemon", "stop", env=self.environment, cwd=self.folder)  # or there is no config

    def _compare(self, command: str, shown: list[str], printed: str) -> None:
        missing = self._find_missing(shown, printed)
        assert not missing, f"`{command}` does not print `{missing}`, but:\n{printed}"

    def _find_missing(self, shown: list[str], printed: str) -> str:
        """Return the first of the shown lines that was not printed after those before it; empty if all were."""
        remaining = iter([part.rstrip() for part in re.split(r"[\r\n]+", printed)])
        for line in shown:
            if line.strip() in ("", "…"):
                continue
            pattern, names = self._pattern(line)
            match = next((found for each in remaining if (found := pattern.fullmatch(each))), None)
            if match is None:
                return line
            self._ids |= {name: match[f"id{n}"] for n, name in enumerate(names)}
        return ""

    def _pattern(self, line: str) -> tuple[re.Pattern[str], list[str]]:
        """Return what a shown line matches, and the ids in it that stand for others."""
        names: list[str] = []
        pattern = ""
        for part in re.split(rf"({_ID.pattern}|dmcp_\w*…|…|\d+|\s+)", line.strip()):
            if part.startswith("dmcp_"):
                pattern += rf"(?P<id{len(names)}>dmcp_\S+)"
                names.append("dmcp_…")
            elif part == "…":
                pattern += ".*"
            elif part.isspace():
                pattern += r"\s+"
            elif part.isdecimal() and len(part) < 6:
                pattern += r"\d+"
            elif _ID.fullmatch(part) and part not in self._ids:
                pattern += rf"(?P<id{len(names)}>\w+)"
                names.append(part)
            else:
                pattern += re.escape(self._fill_in(part))
        redrawn = ".*" if _ENTER.match(line) else ""  # on the same line as before
        return re.compile(rf"\s*{redrawn}{pattern}"), names

    def _fill_in(self, text: str) -> str:
        """Return a shown text with what stands for something on this machine."""
        places = {_ADDRESS: self.address, "/home/you": str(self.home), "/etc/dynamic-mcp": str(self.folder)}
        for shown, meant in (places | self._ids).items():
            text = text.replace(shown, meant)
        return text

    def _write_config(self, text: str) -> None:
        if '"dynamic-mcp":' in text:
            self._entry = json.loads(text)["mcpServers"]["dynamic-mcp"] if '"url"' in text else {}
        elif '"mcpServers"' in text:
            (self.folder / "dynamic-mcp.json").write_text(text)

    def _install(self, name: str, command: str) -> None:
        file = self._bin / name
        file.write_text(f"#!/bin/sh\n{command}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    def _set_up_tools(self) -> None:
        """Have Cursor, Claude Code and Codex, each with servers of its own."""
        entries = {name: {key: SERVERS[name][key] for key in ("command", "args")} for name in SERVERS}
        (self.home / ".cursor").mkdir()
        (self.home / ".codex").mkdir()
        (self.home / ".cursor" / "mcp.json").write_text(
            json.dumps({"mcpServers": {"time": entries["time"]}}, indent=2)
        )
        claude = {"mcpServers": {name: {"type": "stdio", **entries[name]} for name in ("time", "memory")}}
        (self.home / ".claude.json").write_text(json.dumps(claude, indent=2))
        git = entries["git"]
        (self.home / ".codex" / "config.toml").write_text(
            f'[mcp_servers.git]\ncommand = "{git["command"]}"\nargs = {json.dumps(git["args"])}\n'
        )


def find_steps(block: Block) -> list[tuple[str, list[str]]]:
    """Return the commands of a block, each with the lines that it is shown to print."""
    has_prompts = block.text.startswith("$ ") or "\n$ " in block.text
    steps: list[tuple[str, list[str]]] = []
    for line in block.text.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            steps.append((line.removeprefix("$ "), []))
        elif has_prompts and steps:
            if not line.lstrip().startswith("#"):
                steps[-1][1].append(line)
        elif not has_prompts and line.strip() and not line.startswith("#"):
            steps.append((line, []))
    return steps

"""The clients, as data: how each is set up, run and asked, and what it cannot do by itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.clients import files
from tests.clients.files import Servers
from tests.clients.model import Call

Json = Any  # whatever JSON a call takes
VERSIONS: dict[str, str] = json.loads(Path(__file__).with_name("package.json").read_text())["dependencies"]
OURS = "dynamic-mcp"


@dataclass(frozen=True)
class Client:
    """One AI client.

    `name` is the program's own name for it, `title` its maker's. `write` returns its files below the home, from the
    model's URL and the servers; `named` the name under which the model sees a server's tool, and `variables` what the
    client needs in its environment to ask that model. `reveal` is the model's first call where the client hides these
    tools. `go` is its command line for a turn; a client without a model has `call` instead, which returns the one
    that calls a tool. `lists` is how it is asked for its servers, and `healthy` matches what it then says of one.
    `noise` matches what differs from turn to turn in what the client writes around results. `in_shell` is the call
    that runs a command in the client's own shell, `read_skill` the one that reads a skill of this name, in this file.

    What it does not do by itself is data too: spellings of variables that it `refuses` (`in_url` is its own),
    `installs` where `dynamic-mcp install` knows it, and the reasons why it shows `no_images` or `hides` the tools, or
    `names_skills` without their descriptions.
    What `differs` are the spellings (or headers) that mean something else after an import, each with what it means.
    """

    name: str
    title: str
    package: str
    program: str
    file: str
    write: Callable[[str, Servers], dict[str, str]]
    go: tuple[str, ...] = ()
    call: Callable[[str, str, Json], tuple[str, ...]] | None = None
    named: Callable[[str, str], str] = lambda server, tool: f"{server}.{tool}"
    variables: Callable[[str], dict[str, str]] = lambda url: {}
    reveal: Callable[[list[str]], Call] | None = None
    lists: tuple[str, ...] = ()
    healthy: str = "{server}"
    noise: str = "(?!)"
    in_shell: Callable[[str], Call] | None = None
    read_skill: Callable[[str, Path], Call] | None = None
    names_skills: str = ""
    in_url: str = "${V_SHELL}"
    refuses: tuple[str, ...] = ()
    differs: Mapping[str, str] = field(default_factory=dict)
    installs: bool = True
    no_images: str = ""
    hides: str = ""
    know: str = ""

    @property
    def version(self) -> str:
        """The version that is installed for the tests."""
        return VERSIONS[self.package]


def _select(tool: str) -> Callable[[list[str]], Call]:
    return lambda names: Call(tool, {"query": f"select:{','.join(names)}"})


def _words(names: list[str]) -> str:
    """Return what a model would search for: the names of the tools, without that of the server which all have."""
    return " ".join(name.rpartition("/")[2] for name in names).replace("_", " ")


def _bash(tool: str, **others: Json) -> Callable[[str], Call]:
    return lambda command: Call(tool, {"command": command, "description": "Run it", **others})


def _skill(tool: str, field: str) -> Callable[[str, Path], Call]:
    return lambda name, file: Call(tool, {field: name})


_EMPTY = {"${V_EMPTY:-other}": "an empty variable takes the default here, and stays empty there"}
_UNSET = {"$V_UNSET": "an unset variable stays in the text, as `${V_UNSET}`"}

# the name of the tool and the whole call, which an error and an image are told with
_GEMINI_NAMES = r"'\w+_(?:lighthouse|tool)'|for function call: \{.*?\} with|\"name\":\"\w+\""

CLIENTS = (
    Client(
        name="claude",
        title="Claude Code",
        package="@anthropic-ai/claude-code",
        program="claude",
        write=files.claude,
        go=("-p", "go", "--dangerously-skip-permissions"),
        named=lambda server, tool: f"mcp__{server}__{tool}",
        variables=lambda url: {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "key",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1",
        },
        file=".claude.json",
        lists=("mcp", "list"),
        healthy=r"{server}: .* ✔ Connected",
        reveal=_select("ToolSearch"),
        noise=r"\[Image: source: [^\]]*\]",
        differs=_EMPTY,
        in_shell=_bash("Bash"),
        read_skill=_skill("Skill", "skill"),
        know="hides the tools of servers behind its own search, except those of entries with `alwaysLoad`",
    ),
    Client(
        name="codex",
        title="Codex",
        package="@openai/codex",
        program="codex",
        write=files.codex,
        go=("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "go"),
        named=lambda server, tool: f"mcp__{server.replace('-', '_')}/{tool}",
        variables=lambda url: {"SCRIPTED_KEY": "key"},
        in_url="plain",
        reveal=lambda names: Call("tool_search", {"query": _words(names), "limit": 20}),
        noise=r"Wall time: [\d.]+ seconds",
        file=".codex/config.toml",
        lists=("mcp", "list"),
        healthy=r"{server} .* enabled ",
        differs={
            "v-v-empty": "a header that consists of an empty variable is sent empty here, and left out there",
            "v-v-unset": "a header that consists of an unset variable keeps its name here, and is left out there",
        },
        hides="its own search finds them; `install` prints the setting that shows them, which an older Codex refuses",
        in_shell=lambda command: Call("exec_command", {"cmd": command, "yield_time_ms": 30_000}),
        read_skill=lambda name, file: Call("exec_command", {"cmd": f"cat {file}"}),
        know="newer models only get the tools of servers through its own search; structured content replaces texts",
    ),
    Client(
        name="gemini",
        title="Gemini CLI",
        package="@google/gemini-cli",
        program="gemini",
        write=files.gemini,
        go=("-y", "-m", "gemini-2.5-pro", "-p", "go"),
        named=lambda server, tool: f"mcp_{server}_{tool}",
        variables=lambda url: {"GEMINI_API_KEY": "key", "GOOGLE_GEMINI_BASE_URL": url},
        noise=_GEMINI_NAMES,
        file=".gemini/settings.json",
        lists=("mcp", "list"),
        healthy=r"✓ {server}: .* Connected",
        differs={
            **_EMPTY,
            "$V_UNSET": "in arguments, an unset variable is empty here, and stays in the text there",
            "${V_UNSET}": "the same",
            "${env:V_SET}": "stays in the text here; there it is empty in variables and headers",
            "${env:V_UNSET}": "the same",
            "$$V_SET": "`$` and the value; there the value is expanded once more, in variables and headers",
            "$${V_SET}": "the same",
        },
        in_shell=_bash("run_shell_command"),
        read_skill=_skill("activate_skill", "name"),
        know="refuses a result whose first text is a JSON array; puts texts into `<untrusted_context>`",
    ),
    Client(
        name="qwen-code",
        title="Qwen Code",
        package="@qwen-code/qwen-code",
        program="qwen",
        write=files.qwen,
        go=("--auth-type", "openai", "-y", "-p", "go"),
        named=lambda server, tool: f"mcp__{server}__{tool}",
        variables=lambda url: {"OPENAI_API_KEY": "key", "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": "gpt-4o"},
        file=".qwen/settings.json",
        lists=("mcp", "list"),
        healthy=r"✓\S* {server}: .* Connected",
        reveal=_select("tool_search"),
        noise=_GEMINI_NAMES,
        differs=_UNSET,
        in_shell=_bash("run_shell_command", is_background=False),
        read_skill=_skill("skill", "skill"),
        know="hides the tools of servers behind its own search; `qwen mcp list` lists disabled servers too",
    ),
    Client(
        name="opencode",
        title="opencode",
        package="opencode-ai",
        program="opencode",
        write=files.opencode,
        go=("run", "--model", "scripted/scripted", "go"),
        named=lambda server, tool: f"{server}_{tool}",
        variables=lambda url: {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
        file=".config/opencode/opencode.json",
        in_url="{env:V_SHELL}",
        lists=("mcp", "list"),
        healthy=r"✓ {server} ",
        in_shell=_bash("bash"),
        read_skill=_skill("skill", "name"),
        know="has no search of its own: the tools of every server are in each request",
    ),
    Client(
        name="copilot-cli",
        title="Copilot CLI",
        package="@github/copilot",
        program="copilot",
        write=files.copilot,
        go=("-p", "go", "--allow-all-tools", "--allow-all-paths"),
        named=lambda server, tool: f"{server}-{tool}",
        variables=lambda url: {
            "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
            "COPILOT_PROVIDER_API_KEY": "key",
            "COPILOT_MODEL": "gpt-4.1",
            "COPILOT_AUTO_UPDATE": "false",
            "COPILOT_OFFLINE": "true",
        },
        noise=r"MCP server '[^']*'",
        no_images="it shows none to a model of a custom provider",
        file=".copilot/mcp-config.json",
        lists=("mcp", "list"),
        differs={**_EMPTY, **_UNSET},
        in_shell=_bash("bash"),
        read_skill=_skill("skill", "skill"),
        know="shows both the text and the structured content of a result",
    ),
    Client(
        name="kilocode",
        title="Kilo",
        package="@kilocode/cli",
        program="kilo",
        write=files.kilo,
        go=("run", "--auto", "--model", "scripted/scripted", "go"),
        named=lambda server, tool: f"{server}_{tool}",
        variables=lambda url: {
            "KILO_DISABLE_AUTOUPDATE": "1",
            "KILO_DISABLE_MODELS_FETCH": "1",
            "KILO_TELEMETRY_LEVEL": "off",
        },
        file=".config/kilo/kilo.json",
        in_url="{env:V_SHELL}",
        lists=("mcp", "list"),
        healthy=r"✓ {server} ",
        in_shell=_bash("bash"),
        read_skill=_skill("skill", "name"),
        know="has no search of its own: the tools of every server are in each request",
    ),
    Client(
        name="cline",
        title="Cline",
        package="cline",
        program="cline",
        write=files.cline,
        go=("--json", "-P", "openai-compatible", "-m", "gpt-4o", "go on"),
        named=lambda server, tool: f"{server}__{tool}",
        in_url="${env:V_SHELL}",
        no_images="it writes them out as text",
        file=".cline/data/settings/cline_mcp_settings.json",
        in_shell=lambda command: Call("run_commands", {"commands": [command]}),
        read_skill=_skill("skills", "skill"),
        names_skills="the model gets its name without the description",
        know="shows results as the protocol's own JSON; without dynamic-mcp, a server that asks gets no answer",
    ),
    Client(
        name="mcporter",
        title="mcporter",
        package="mcporter",
        program="mcporter",
        file=".mcporter/mcporter.json",
        write=files.mcporter,
        call=lambda server, tool, arguments: (
            *("call", f"{server}.{tool}", "--output", "json", "--args"),
            json.dumps(arguments),
        ),
        refuses=("${V_UNSET}",),
        lists=("list",),
        healthy=r"- {server} \(\d+ tools",
        differs={
            "\\${V_SET}": "the backslash stays; there it vanishes in arguments and headers, and escapes in variables",
            **_EMPTY,
            "${env:V_SET}": "stays in the text here; there it becomes the variable's name, in variables",
            "${env:V_UNSET}": "the same",
            "x${V_SET}y": "is expanded everywhere here; there not inside a variable's text",
            "$env:V_SET": "is expanded everywhere here; there not inside a header's text",
        },
        know="prints structured content instead of texts; one unset variable makes its whole config fail",
    ),
    Client(
        name="inspector",
        title="Inspector",
        package="@modelcontextprotocol/inspector",
        program="mcp-inspector",
        file=".mcp-inspector/mcp.json",
        write=files.inspector,
        call=lambda server, tool, arguments: (
            *("--cli", "--server", server, "--method", "tools/call", "--tool-name", tool, "--tool-args-json"),
            json.dumps(arguments),
        ),
        installs=False,
        know="`install` does not support it: its entry is written by hand, and `import --file` reads its file",
    ),
)

"""The environment variables that AI tools withhold from the servers they start, and how an entry requests them.

A tool without an entry here passes on its whole environment. Only configs that need variables use this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

_SDK = "HOME LOGNAME PATH SHELL TERM USER"
_SDK_ON_WINDOWS = (
    "APPDATA HOMEDRIVE HOMEPATH LOCALAPPDATA PATH PROCESSOR_ARCHITECTURE SYSTEMDRIVE SYSTEMROOT TEMP USERNAME"
    " USERPROFILE PROGRAMFILES"
)


@dataclass(frozen=True)
class ToolEnvironment:
    """An AI tool that passes only a part of its environment on to the servers it starts.

    `names` are globs over its name in `initialize`. `always_passed` are names of variables, `withheld` globs over
    them: a variable that is withheld and not always passed must be requested. An entry requests variables by a list
    of names in its field `names_field`, or by an `env` whose values are `reference`, with the name in place of
    `NAME`. A tool with neither takes no requests. With `passes_empty`, a requested variable that the tool lacks
    arrives empty. With `inspects_values`, the tool decides by name and value whether to pass on other variables.
    """

    tool: str
    title: str
    names: tuple[str, ...]
    habit: str
    source: str
    always_passed: frozenset[str] = frozenset()
    withheld: tuple[str, ...] = ("*",)
    names_field: str = ""
    reference: str = ""
    passes_empty: bool = False
    inspects_values: bool = False

    def passes_on(self, name: str) -> bool:
        """Return whether a variable reaches servers without a request."""
        return name in self.always_passed or not any(fnmatchcase(name, glob) for glob in self.withheld)

    @property
    def can_be_asked(self) -> bool:
        """Return whether an entry can request variables."""
        return bool(self.names_field or self.reference)

    def list_withheld(self, names: Iterable[str], entry: Mapping[str, object] | None = None) -> list[str]:
        """Return the variables that do not reach a server with this entry."""
        requested = _requested_names(entry or {}, self.names_field)
        return [name for name in names if name not in requested and not self.passes_on(name)]

    def request_fields(self, names: Iterable[str]) -> dict[str, object]:
        """Return the field of an entry that requests these variables; empty if the tool takes no requests."""
        names = list(names)
        if not names or not self.can_be_asked:
            return {}
        if self.names_field:
            return {self.names_field: names}
        return {"env": {name: self.reference.replace("NAME", name) for name in names}}


def find_client(tool: str) -> ToolEnvironment | None:
    """Return the AI tool with this name, or None if it withholds no variables."""
    return next((client for client in CLIENTS if client.tool == tool), None)


def find_client_by_name(name: str) -> ToolEnvironment | None:
    """Return the AI tool with this name in `initialize`."""
    return next((client for client in CLIENTS if any(fnmatchcase(name, glob) for glob in client.names)), None)


def advice(unset: Iterable[str], empty: Iterable[str], name: str) -> str:
    """Explain which variables are not set, the likely reason with this client, and the fix; empty if all are set.

    Variables in `empty` count only if the client passes on empty values for variables that it lacks.
    """
    client = find_client_by_name(name)
    names = [*unset, *(empty if client is not None and client.passes_empty else ())]
    if not names:
        return ""
    shown = ", ".join(f"`{each}`" for each in names)
    problem = f"{shown} {'is' if len(names) == 1 else 'are'} not set for dynamic-mcp"
    withheld = client.list_withheld(names) if client is not None else []
    if client is None or not withheld:
        return f"{problem}: set {_it(names)} where the AI tool starts"
    if not client.can_be_asked:
        return f"{problem}: {client.title} {client.habit}; put {_it(names)} into a file that `variables_file` names"
    return f"{problem}: {client.title} {client.habit}; set {_it(names)} and run `dynamic-mcp install {client.tool}`"


def _it(names: list[str]) -> str:
    return "it" if len(names) == 1 else "them"


def _requested_names(entry: Mapping[str, object], names_field: str) -> set[str]:
    env, names = entry.get("env"), entry.get(names_field) if names_field else None
    requested = set(env) if isinstance(env, Mapping) else set()
    for each in names if isinstance(names, list) else ():
        name = each.get("name") if isinstance(each, Mapping) else each
        requested |= {name} if isinstance(name, str) else set()
    return requested


_SDK_NAMES = frozenset(f"{_SDK} {_SDK_ON_WINDOWS}".split())
_TAKEN_BY_COPILOT = (
    "GITHUB_TOKEN",
    "COPILOT_GITHUB_TOKEN",
    "GITHUB_COPILOT_*TOKEN",
    "GITHUB_PERSONAL_ACCESS_TOKEN",
    "GITHUB_MCP_SERVER_TOKEN",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "AZURE_OPENAI_API_KEY",
    "COPILOT_PROVIDER_*",
    "NODE_ENV",
)
# Gemini CLI lets no entry set these, but always passes them on.
_NOT_FOR_GEMINI = frozenset(
    (
        "NODE_OPTIONS",
        "NODE_PATH",
        "PYTHONPATH",
        "LD_LIBRARY_PATH",
        "JAVA_TOOL_OPTIONS",
        "CLASSPATH",
        "BASH_ENV",
        "ENV",
    )
)
_CERTIFICATES = frozenset(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"))
_ONLY_A_FEW = "passes on only a few variables and those that its entry names"

CLIENTS = (
    ToolEnvironment(
        "codex",
        "Codex",
        ("codex-mcp-client",),
        _ONLY_A_FEW,
        "https://developers.openai.com/codex/mcp",
        always_passed=_SDK_NAMES | {"LANG", "LC_ALL", "TMPDIR", "TZ"} | _CERTIFICATES,
        names_field="env_vars",
    ),
    ToolEnvironment(
        "gemini",
        "Gemini CLI",
        ("gemini-cli-mcp-client*",),
        "withholds variables that look like secrets, except those that its entry names",
        "https://geminicli.com/docs/tools/mcp-server/",
        always_passed=_SDK_NAMES | {"LANG", "TMPDIR", "TMP", "COLORTERM"} | _NOT_FOR_GEMINI,
        reference="$NAME",
        passes_empty=True,
        inspects_values=True,
    ),
    ToolEnvironment(
        "roo-code",
        "Roo Code",
        ("Roo Code",),
        _ONLY_A_FEW,
        "https://docs.roocode.com/features/mcp/using-mcp-in-roo",
        always_passed=_SDK_NAMES,
        reference="${env:NAME}",
    ),
    ToolEnvironment(
        "librechat",
        "LibreChat",
        ("@librechat/api-client",),
        _ONLY_A_FEW,
        "https://www.librechat.ai/docs/configuration/librechat_yaml/object_structure/mcp_servers",
        always_passed=_SDK_NAMES,
        reference="${NAME}",
    ),
    ToolEnvironment(
        "hermes",
        "Hermes Agent",
        ("hermes*",),
        _ONLY_A_FEW,
        "https://hermes-agent.nousresearch.com/docs/user-guide/features/mcp",
        always_passed=_SDK_NAMES - {"LOGNAME"} | {"LANG", "LC_ALL", "TMPDIR"},
        reference="${NAME}",
    ),
    ToolEnvironment(
        "continue",
        "Continue",
        ("continue-client", "continue-cli-client"),
        "passes on only a few variables",
        "https://docs.continue.dev/customize/deep-dives/mcp",
        always_passed=_SDK_NAMES,
    ),
    ToolEnvironment(
        "claude-desktop",
        "Claude Desktop",
        ("claude-ai",),
        "passes on only a few variables",
        "https://modelcontextprotocol.io/docs/tools/debugging",
        always_passed=_SDK_NAMES,
    ),
    ToolEnvironment(
        "mistral-vibe",
        "Mistral Vibe",
        (),  # it sends the name of its SDK
        "passes on only a few variables",
        "https://docs.mistral.ai/mistral-vibe/introduction/configuration",
        always_passed=_SDK_NAMES,
    ),
    ToolEnvironment(
        "copilot-cli",
        "GitHub Copilot CLI",
        ("copilot-cli", "github-copilot-developer"),
        "withholds the variables of its own logins",
        "https://docs.github.com/en/copilot/how-tos/copilot-cli/customize-copilot/add-mcp-servers",
        withheld=_TAKEN_BY_COPILOT,
    ),
)

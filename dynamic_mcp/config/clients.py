"""What AI tools withhold of their environment from the servers that they start, and how an entry asks for it.

A tool without a row passes its whole environment on. This is read only where a config needs variables.
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
class Client:
    """A tool that passes only a part of its environment on to the servers that it starts.

    `names` are globs over what it calls itself in `initialize`. `kept` and `dropped` are globs over variables: what
    is dropped and not kept must be asked for. An entry asks by a list of names in the field `listed`, or by an `env`
    whose values are `reference` with the name in the place of `NAME`; a tool with neither cannot be asked. A tool
    that `empties` passes on an empty value for what it is asked for and does not have. One that `judges` looks at
    names and values, so that what is neither kept nor asked for may pass or not.
    """

    tool: str
    title: str
    names: tuple[str, ...]
    habit: str
    source: str
    kept: frozenset[str] = frozenset()
    dropped: tuple[str, ...] = ("*",)
    listed: str = ""
    reference: str = ""
    empties: bool = False
    judges: bool = False

    def passes(self, name: str) -> bool:
        """Tell whether a variable reaches a server without being asked for."""
        return name in self.kept or not any(fnmatchcase(name, glob) for glob in self.dropped)

    @property
    def can_be_asked(self) -> bool:
        """Tell whether an entry can ask for more."""
        return bool(self.listed or self.reference)

    def withheld(self, names: Iterable[str], entry: Mapping[str, object] | None = None) -> list[str]:
        """Return which of these variables do not reach a server that has this entry."""
        named = _named(entry or {}, self.listed)
        return [name for name in names if name not in named and not self.passes(name)]

    def asking(self, names: Iterable[str]) -> dict[str, object]:
        """Return the field of an entry that asks for these variables; nothing where the tool cannot be asked."""
        names = list(names)
        if not names or not self.can_be_asked:
            return {}
        if self.listed:
            return {self.listed: names}
        return {"env": {name: self.reference.replace("NAME", name) for name in names}}


def client_of(tool: str) -> Client | None:
    """Return what is known of a tool that withholds variables."""
    return next((client for client in CLIENTS if client.tool == tool), None)


def client_named(name: str) -> Client | None:
    """Return the tool that calls itself so in `initialize`."""
    return next((client for client in CLIENTS if any(fnmatchcase(name, glob) for glob in client.names)), None)


def advice(unset: Iterable[str], empty: Iterable[str], name: str) -> str:
    """Say that these variables are not set for us, why that may be with the client of this name, and what to do.

    An `empty` one counts where the client passes on nothing for what it does not have. Empty where all is well.
    """
    client = client_named(name)
    names = [*unset, *(empty if client is not None and client.empties else ())]
    if not names:
        return ""
    shown = ", ".join(f"`{each}`" for each in names)
    said = f"{shown} {'is' if len(names) == 1 else 'are'} not set for dynamic-mcp"
    withheld = client.withheld(names) if client is not None else []
    if client is None or not withheld:
        return f"{said}: set {_it(names)} where the AI tool starts"
    if not client.can_be_asked:
        return f"{said}: {client.title} {client.habit}; put {_it(names)} into a file that `variables_file` names"
    return f"{said}: {client.title} {client.habit}; set {_it(names)} and run `dynamic-mcp install {client.tool}`"


def _it(names: list[str]) -> str:
    return "it" if len(names) == 1 else "them"


def _named(entry: Mapping[str, object], listed: str) -> set[str]:
    """Return the variables that an entry sets or asks for."""
    env, names = entry.get("env"), entry.get(listed) if listed else None
    found = set(env) if isinstance(env, Mapping) else set()
    for each in names if isinstance(names, list) else ():
        name = each.get("name") if isinstance(each, Mapping) else each
        found |= {name} if isinstance(name, str) else set()
    return found


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
# What Gemini CLI lets no entry set; it passes these on by itself.
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
_ONLY_A_FEW = "passes on a few variables only, and those that its entry names"

CLIENTS = (
    Client(
        "codex",
        "Codex",
        ("codex-mcp-client",),
        _ONLY_A_FEW,
        "https://developers.openai.com/codex/mcp",
        kept=_SDK_NAMES | {"LANG", "LC_ALL", "TMPDIR", "TZ"} | _CERTIFICATES,
        listed="env_vars",
    ),
    Client(
        "gemini",
        "Gemini CLI",
        ("gemini-cli-mcp-client*",),
        "keeps variables that look like secrets to itself, but for those that its entry names",
        "https://geminicli.com/docs/tools/mcp-server/",
        kept=_SDK_NAMES | {"LANG", "TMPDIR", "TMP", "COLORTERM"} | _NOT_FOR_GEMINI,
        reference="$NAME",
        empties=True,
        judges=True,
    ),
    Client(
        "roo-code",
        "Roo Code",
        ("Roo Code",),
        _ONLY_A_FEW,
        "https://docs.roocode.com/features/mcp/using-mcp-in-roo",
        kept=_SDK_NAMES,
        reference="${env:NAME}",
    ),
    Client(
        "librechat",
        "LibreChat",
        ("@librechat/api-client",),
        _ONLY_A_FEW,
        "https://www.librechat.ai/docs/configuration/librechat_yaml/object_structure/mcp_servers",
        kept=_SDK_NAMES,
        reference="${NAME}",
    ),
    Client(
        "hermes",
        "Hermes Agent",
        ("hermes*",),
        _ONLY_A_FEW,
        "https://hermes-agent.nousresearch.com/docs/user-guide/features/mcp",
        kept=_SDK_NAMES - {"LOGNAME"} | {"LANG", "LC_ALL", "TMPDIR"},
        reference="${NAME}",
    ),
    Client(
        "continue",
        "Continue",
        ("continue-client", "continue-cli-client"),
        "passes on a few variables only",
        "https://docs.continue.dev/customize/deep-dives/mcp",
        kept=_SDK_NAMES,
    ),
    Client(
        "claude-desktop",
        "Claude Desktop",
        ("claude-ai",),
        "passes on a few variables only",
        "https://modelcontextprotocol.io/docs/tools/debugging",
        kept=_SDK_NAMES,
    ),
    Client(
        "mistral-vibe",
        "Mistral Vibe",
        (),  # it says the name of its SDK
        "passes on a few variables only",
        "https://docs.mistral.ai/mistral-vibe/introduction/configuration",
        kept=_SDK_NAMES,
    ),
    Client(
        "copilot-cli",
        "GitHub Copilot CLI",
        ("copilot-cli", "github-copilot-developer"),
        "keeps the variables of its own logins to itself",
        "https://docs.github.com/en/copilot/how-tos/copilot-cli/customize-copilot/add-mcp-servers",
        dropped=_TAKEN_BY_COPILOT,
    ),
)

"""Odd command lines: words of the grammar mixed with what nobody types, in an environment that nobody has."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click
from hypothesis import strategies as st

from dynamic_mcp.cli.command_group import commands
from tests.program import UPSTREAMS

TINY = {"command": sys.executable, "args": ["-I", "-S", str(UPSTREAMS / "tiny.py")]}
GONE = {"command": "/nowhere/to/be/found"}
FAR = {"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": "Bearer ${NOT_SET}"}}
SERVERS = {"tiny": TINY, "my group": {**TINY, "direct": True}, "off": {**TINY, "enabled": False}, "gone": GONE}

REGISTRIES = [{"name": "gone", "url": "http://127.0.0.1:9"}]

# What the documents promise; 3 is the import's.
EXIT_CODES = {0, 1, 2, 3, 4, 5, 130}
# What a person must never see, and a program never prints on purpose.
BUGS = ("Traceback (most recent call last)", "never retrieved", "Exception ignored", "Assertion", "was never awaited")


@dataclass(frozen=True)
class Line:
    """One run: its words, its environment, what is on stdin, and which standard descriptors are closed."""

    args: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    stdin: bytes = b""
    closed: tuple[int, ...] = ()

    def __repr__(self) -> str:
        """Return it so that it can be read: of what is long, the beginning and the length."""
        environment = {name: _shorten(value) for name, value in self.environment.items()}
        args = [_shorten(each) for each in self.args]
        return f"Line({args!r}, {environment!r}, {self.stdin[:200]!r}, {self.closed!r}, {len(self.stdin)} bytes)"


def _shorten(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:20]} and so on: {len(text)}"


def _words(text: str) -> list[str]:
    return text.split()


def _options() -> Iterator[tuple[str, list[str]]]:
    """Yield each command, and the options that it takes."""
    with click.Context(commands) as context:
        for name in commands.list_commands(context):
            command = commands.get_command(context, name)
            assert command is not None
            if name == "ui":  # goes on until it is interrupted
                continue
            inner = list(command.commands.values()) if isinstance(command, click.Group) else [command]
            options = [param for each in inner for param in each.params if isinstance(param, click.Option)]
            words = [word for option in options for word in option.opts]
            # so do these
            yield name, sorted({*words, "--help"} - {"-f", "--follow", "-w", "--watch", "--http"})


OPTIONS = dict(_options())
DEEP = "[" * 5000 + "]" * 5000
_FILES = _words("dynamic-mcp.json far.json broken.json odd\udcff.json fifo loop . /dev/null /dev/zero /dev/stdin")
_PLAIN = _words("""
    echo greet tiny://a cursor claude-code opencode user project local bash login logout status true full names 1s -1
    0 $.text $..* {} - -- = text=a n=1.0 n:=NaN n:=1e999 o:={} o.a=1 list=1 text=@dynamic-mcp.json text=@fifo
    https://127.0.0.1:9/mcp a\udcff text=\udcff A=\udcff \x1b[31m é=ü
""")
_JSON = ['{"text": "\\ud83d"}', '{"n": 1, "n": 2}', '{"n": 1.0}', f'{{"o": {DEEP}}}', f"o:={DEEP}"]
KNOWN = [*SERVERS, *_FILES, *_PLAIN, *_JSON, "", "n=" + "9" * 5000, "text=" + "x" * 100_000, "p" * 5000]
# What works as it stands, and goes on with something odd.
_BEGINNINGS = [
    _words(line)
    for line in (
        "call tiny echo",
        "call tiny echo text=a --json",
        "call tiny echo --select",
        "call tiny echo --timeout",
        "call tiny echo --save",
        "read tiny://a --group tiny",
        "read",
        "prompt tiny greet",
        "tools",
        "tools tiny --detail names",
        "tools --query",
        "resources tiny",
        "prompts",
        "stats",
        "check",
        "check odd\udcff.json",
        "doctor tiny",
        "doctor -c",
        "add new -- true",
        "add new --url https://127.0.0.1:9/mcp --env",
        "add",
        "add io.github.example/weather --yes --set",
        "registry search weather",
        "registry show io.github.example/weather@1.0",
        "registry outdated",
        "registry update --yes",
        "registry link tiny",
        "enable off",
        "disable tiny",
        "remove tiny",
        "import cursor --yes -o",
        "import --all --yes --dry-run",
        "import --file",
        "install cursor",
        "install cursor --scope",
        "uninstall cursor",
        "undo --list",
        "undo",
        "auth status -c far.json",
        "auth login far -c far.json --no-browser",
        "auth login far -c far.json --token",
        "auth logout -c far.json",
        "access check -g tiny --as local --tool echo",
        "access explain -g tiny --as a --tool echo --args",
        "access matrix --csv",
        "access classify tiny",
        "status",
        "logs --since",
        "audit -n 5 --who",
        "audit verify",
        "audit verify --seals",
        "audit seal --now",
        "audit stats --by person",
        "audit export --format csv -o",
        "completions bash",
        "schema",
        "serve",
        "dynamic-mcp.json",
        "-c",
    )
]
# Neither a place outside of the sandbox, nor what goes on until it is interrupted.
_TEXT = st.text(st.characters(exclude_characters="\0/~", exclude_categories=[]), max_size=12).filter(
    lambda word: not word.startswith("-") and ".." not in word
)
_WORD = st.one_of(st.sampled_from(KNOWN), st.sampled_from(KNOWN), _TEXT)
_NAMES = _words(
    "DYNAMIC_MCP_CONFIG DYNAMIC_MCP_LOG DYNAMIC_MCP_PROFILE COLUMNS LINES TERM NO_COLOR FORCE_COLOR LANG PATH TMPDIR"
)
_VALUES = ["", *_words("0 -5 abc 99999999999 dumb debug /dev/null nowhere far.json broken.json \udcff")]
_STDIN = [
    b"",
    b"{}",
    b'{"text": "a"}',
    b"\xff\xfe",
    b"[" * 100_000,
    b"y\n" * 1000,
    b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n{"jsonrpc":"2.0","id":2,"method":"ping"}\n',
    b'{"mcpServers": {}}',
]


def _argv() -> st.SearchStrategy[list[str]]:
    named = st.sampled_from(sorted(OPTIONS)).flatmap(
        lambda name: st.lists(st.one_of(_WORD, _WORD, st.sampled_from(OPTIONS[name])), max_size=6).map(
            lambda words: [name, *words]
        )
    )
    begun = st.tuples(st.sampled_from(_BEGINNINGS), st.lists(_WORD, max_size=1)).map(lambda two: [*two[0], *two[1]])
    called = st.lists(_WORD, max_size=3).map(lambda words: ["call", "tiny", "echo", *words])
    alone = st.lists(_WORD, max_size=3)
    return st.one_of(named, begun, begun, begun, called, alone).map(_without_impossible_bytes)


def _without_impossible_bytes(words: list[str]) -> list[str]:
    """Return words as a kernel hands them over: bytes, as Python decodes them."""
    return [os.fsdecode(_bytes(word)) for word in words]


def _bytes(word: str) -> bytes:
    try:
        return os.fsencode(word)
    except UnicodeEncodeError:
        return word.encode("utf-8", "surrogatepass")


LINES: st.SearchStrategy[Line] = st.builds(
    Line,
    args=_argv(),
    environment=st.dictionaries(st.sampled_from(_NAMES), st.sampled_from(_VALUES), max_size=3),
    stdin=st.one_of(st.sampled_from(_STDIN), st.binary(max_size=100)),
    closed=st.sampled_from([(), (), (), (), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]),
)


def create_files(folder: Path) -> None:
    """Put configs and settings into an empty sandbox."""
    (folder / "home" / ".cursor").mkdir(parents=True)
    (folder / "home" / ".cursor" / "mcp.json").write_text(
        json.dumps({"mcpServers": {"theirs": TINY}}), encoding="utf-8"
    )
    for name in ("dynamic-mcp.json", "odd\udcff.json"):
        (folder / name).write_text(
            json.dumps({"mcpServers": SERVERS, "settings": {"registries": REGISTRIES}}), encoding="utf-8"
        )
    (folder / "far.json").write_text(json.dumps({"mcpServers": {"far": FAR}}), encoding="utf-8")
    (folder / "broken.json").write_text('{"mcpServers": {"a": {"command": 7}}', encoding="utf-8")
    os.mkfifo(folder / "fifo")
    (folder / "loop").symlink_to("loop")


def environment(folder: Path, changes: dict[str, str]) -> dict[str, str]:
    """Return the environment of a run, in which nothing is outside of the sandbox."""
    places = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CONFIG", "CACHE", "STATE", "DATA")}
    nowhere = {"HTTPS_PROXY": "http://127.0.0.1:9"}  # the official registry is not asked
    own = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "TMPDIR": str(folder)}
    return {**own, **nowhere, **places, **changes}


def find_faults(line: Line, code: object, out: str, err: str) -> list[str]:
    """Return what is wrong with how a run ended."""
    found = [] if code in EXIT_CODES else [f"exit code {code}"]
    if code == 3 and line.args[:1] != ["import"]:
        found.append("exit code 3, which is the import's")
    found += [f"{bug} in its output" for bug in BUGS if bug in err or bug in out]
    if code in (1, 2) and not out and not err and not {1, 2} & set(line.closed):
        found.append("failed without a word")
    return found

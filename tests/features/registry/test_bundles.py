"""`add FILE.mcpb`: a bundle is checked, asked about, unpacked into a folder of its own, and removed as a whole."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import stat
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dynamic_mcp.config import jsonc
from dynamic_mcp.features.registry.bundle import BadBundle, Bundle, bundles_dir
from dynamic_mcp.features.registry.bundle_entry import Site, ask_about, build_entry
from tests.cli.commands import CliRunner, CommandResult
from tests.program import UPSTREAMS

Json = Any
AUTHOR = {"name": "Somebody"}
Members = Mapping[str, bytes | str]


def manifest(**members: Json) -> Json:
    server = {"type": "python", "entry_point": "server/main.py"}
    return {
        "manifest_version": "0.3",
        "name": "weather",
        "version": "1.0.0",
        "author": AUTHOR,
        "server": server,
        **members,
    }


def starting(command: str, *args: str, kind: str = "python", **env: str) -> Json:
    return {
        "type": kind,
        "entry_point": "server/main.py",
        "mcp_config": {"command": command, "args": args, "env": env},
    }


def archive(document: Json, files: Members | None = None, *, change: Callable[[zipfile.ZipFile], None] = id) -> bytes:  # type: ignore[assignment]
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as out:
        if document is not None:
            out.writestr("manifest.json", document if isinstance(document, str) else json.dumps(document))
        for name, content in {"server/main.py": "print()", **(files or {})}.items():
            out.writestr(name, content)
        change(out)
    return data.getvalue()


def opened(document: Json, files: Members | None = None) -> Bundle:
    return Bundle(io.BytesIO(archive(document, files)))


def entry_of(
    document: Json, files: Members | None = None, *, platform: str = "linux", **answers: tuple[str, ...]
) -> Json:
    site = Site(Path("/data/f"), Path("/home/me"), platform, lambda program: program != "python")
    return build_entry(opened(document, files), answers, site)


# --- what is refused -------------------------------------------------------------------------------------------


def with_member(name: str, *, mode: int = 0, content: str = "x") -> Callable[[zipfile.ZipFile], None]:
    def add(out: zipfile.ZipFile) -> None:
        info = zipfile.ZipInfo("placeholder")
        info.filename = info.orig_filename = name
        info.external_attr = mode << 16
        out.writestr(info, content)

    return add


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (with_member("../evil"), "leads elsewhere"),
        (with_member("server/../../evil"), "leads elsewhere"),
        (with_member("/etc/evil"), "leads elsewhere"),
        (with_member("a//b"), "leads elsewhere"),
        (with_member("./x"), "leads elsewhere"),
        (with_member("..\\evil"), "not a plain path"),
        (with_member("C:evil"), "not a plain path"),
        (with_member("file:stream"), "not a plain path"),
        (with_member("a\nb"), "not a plain path"),
        (with_member("a\0b"), "not a plain path"),
        (with_member("con.txt"), "leads elsewhere"),
        (with_member("dir./x"), "leads elsewhere"),
        (with_member("x" * 300), "too long"),
        (with_member("link", mode=stat.S_IFLNK | 0o777, content="/etc/passwd"), "is a link"),
        (with_member("pipe", mode=stat.S_IFIFO | 0o644), "special file"),
        (with_member("SERVER/MAIN.PY"), "is in it twice"),
        (with_member("server/main.py/below"), "is below a file"),
    ],
)
def test_an_archive_with_any_doubtful_member_is_refused_as_a_whole(
    change: Callable[[zipfile.ZipFile], None], why: str
) -> None:
    with pytest.raises(BadBundle, match=why):
        Bundle(io.BytesIO(archive(manifest(), change=change)))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK\x05\x06" + bytes(18),
        b"not a zip" * 1000,
        archive(manifest())[:-30],
        archive(None),
        archive("{"),
        archive("[]"),
        archive("[" * 100_000),
        archive({"name": "x"}),
        archive(manifest(name="a\x1b[31m")),
        archive(manifest(server={"type": "java", "entry_point": "x"})),
        archive(manifest(user_config={"k": {"type": "secret"}})),
        archive(json.dumps(manifest()) + " " * (2 << 20)),
    ],
)
def test_what_is_no_bundle_is_refused_in_words(data: bytes) -> None:
    with pytest.raises(BadBundle):
        Bundle(io.BytesIO(data))


def test_a_bomb_is_refused_before_it_is_unpacked_and_while_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dynamic_mcp.features.registry.bundle.MOST_UNPACKED", 1 << 20)
    data = archive(manifest(), {"bomb": bytes(2 << 20)})
    with pytest.raises(BadBundle, match="unpacks to more"):
        Bundle(io.BytesIO(data))
    bundle = opened(manifest(), {"zeros": bytes(1 << 19)})
    monkeypatch.setattr("dynamic_mcp.features.registry.bundle.MOST_UNPACKED", 1000)
    with pytest.raises(BadBundle, match="unpacks to more"):
        bundle.unpack(tmp_path / "here", programs=frozenset())
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_member_leaves_nothing_behind(tmp_path: Path) -> None:
    data = bytearray(archive(manifest(), {"data": os.urandom(50_000)}))
    place = data.index(b"data") + 20_000
    data[place : place + 4] = b"\xff\xff\xff\xff"
    with pytest.raises(BadBundle, match="damaged"):
        Bundle(io.BytesIO(bytes(data))).unpack(tmp_path / "here", programs=frozenset())
    assert list(tmp_path.iterdir()) == []


def test_files_are_unpacked_for_their_owner_alone(tmp_path: Path) -> None:
    bundle = opened(manifest(), {"bin/tool": "x", "empty/": ""})
    bundle.unpack(tmp_path / "here", programs=frozenset({"bin/tool"}))

    found = sorted(str(each.relative_to(tmp_path / "here")) for each in (tmp_path / "here").rglob("*"))
    assert [each.replace("\\", "/") for each in found] == [
        *("bin", "bin/tool", "empty", "manifest.json", "server", "server/main.py"),
    ]
    if sys.platform != "win32":
        assert stat.S_IMODE((tmp_path / "here/bin/tool").stat().st_mode) == 0o700
        assert stat.S_IMODE((tmp_path / "here/server/main.py").stat().st_mode) == 0o600
        assert stat.S_IMODE((tmp_path / "here").stat().st_mode) == 0o700


# --- what is written -------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.sep == "\\", reason="the paths of the expectation are those of POSIX")
@pytest.mark.parametrize(
    ("server", "command", "args"),
    [
        ({"type": "node", "entry_point": "server/main.py"}, "node", ["/data/f/server/main.py"]),
        ({"type": "python", "entry_point": "server/main.py"}, "python3", ["/data/f/server/main.py"]),
        ({"type": "uv", "entry_point": "server/main.py"}, "uv", ["run", "--directory", "/data/f", "server/main.py"]),
        ({"type": "binary", "entry_point": "server/main.py"}, "/data/f/server/main.py", []),
        (starting("server/main.py", "a"), "/data/f/server/main.py", ["a"]),
        (starting("./server/main.py"), "/data/f/server/main.py", []),
        (starting("${__dirname}/server/main.py"), "/data/f/server/main.py", []),
        (starting("npx", "-y", "${HOME}${/}x"), "npx", ["-y", "/home/me/x"]),
        (starting("node", "${TOKEN} ${op:op://v/i/f}"), "node", ["$${TOKEN} $${op:op://v/i/f}"]),
    ],
)
def test_a_server_is_started_as_its_type_or_its_manifest_says(server: Json, command: str, args: list[str]) -> None:
    entry = entry_of(manifest(server=server, description="Rain\nand sun"))
    assert (entry["command"], entry["args"], entry["cwd"]) == (command, args, "/data/f")
    assert entry["description"] == "Rain and sun"


@pytest.mark.parametrize(
    ("installed", "command", "platform", "started"),
    [
        ({"python3"}, "python", "linux", "python3"),
        ({"python"}, "python3", "linux", "python"),
        ({"python", "python3"}, "python3", "darwin", "python3"),
        ({"python", "python3"}, "python3", "win32", "python"),
        ({"python3"}, "python", "win32", "python3"),
        (set(), "python3", "win32", "python3"),
    ],
)
def test_python_is_started_by_the_name_that_it_has_here(
    installed: set[str], command: str, platform: str, started: str
) -> None:
    site = Site(Path("/data/f"), Path("/home/me"), platform, installed.__contains__)
    assert build_entry(opened(manifest(server=starting(command))), {}, site)["command"] == started


def test_a_program_for_windows_is_found_by_its_name_without_suffix() -> None:
    files = {"bin/tool": "", "other/tool.exe": ""}
    for words in ("other/tool", "${__dirname}/other/tool", "${__dirname}\\other\\tool"):
        entry = entry_of(manifest(server=starting(words, kind="binary")), files, platform="win32")
        assert str(entry["command"]).endswith("f/other/tool.exe")
    with pytest.raises(BadBundle, match="which is not in it"):
        entry_of(manifest(server=starting("other/tool", kind="binary")), files)


def test_a_platform_of_its_own_is_taken() -> None:
    server = starting("node", "a", MODE="x")
    server["mcp_config"]["platform_overrides"] = {
        "darwin": {"args": ["b"], "env": {"MORE": "y"}},
        "win32": {"command": "server/main.py"},
    }

    assert entry_of(manifest(server=server))["args"] == ["a"]
    there = entry_of(manifest(server=server), platform="darwin")
    assert (there["args"], there["env"]) == (["b"], {"MODE": "x", "MORE": "y"})
    on_windows = entry_of(manifest(server=server), platform="win32")
    assert (on_windows["command"].endswith("f/server/main.py"), on_windows["args"]) == (True, ["a"])
    with pytest.raises(BadBundle, match="does not run here, but on win32"):
        entry_of(manifest(compatibility={"platforms": ["win32"]}))


@pytest.mark.parametrize(
    "server",
    [
        starting("${__dirname}/../../../bin/sh"),
        starting("/bin/sh"),
        starting("../x"),
        starting("server/missing"),
        starting("node", "${user_config.unknown}"),
        {"type": "node", "entry_point": "../../etc/passwd"},
    ],
)
def test_a_start_outside_of_the_bundle_is_refused(server: Json) -> None:
    with pytest.raises(BadBundle):
        entry_of(manifest(server=server))


SETTINGS = {
    "folders": {
        "type": "directory",
        "title": "Folders",
        "multiple": True,
        "required": True,
        "default": ["${HOME}/a"],
    },
    "key": {"type": "string", "description": "The key", "sensitive": True, "required": True},
    "size": {"type": "number", "default": 10, "min": 1, "max": 100},
    "fast": {"type": "boolean", "default": True},
    "city": {"type": "string"},
}
ASKING = starting(
    "node", "server/main.py", "${user_config.folders}", "--size=${user_config.size}", "--city=${user_config.city}",
    KEY="${user_config.key}", FAST="${user_config.fast}", CITY="${user_config.city}",
)  # fmt: skip


@pytest.mark.skipif(os.sep == "\\", reason="the paths of the expectation are those of POSIX")
def test_answers_are_filled_in_and_what_is_optional_may_be_missing() -> None:
    document = manifest(server=ASKING, user_config=SETTINGS)

    entry = entry_of(document, key=("${KEY}",), folders=("/x", "/y z"))
    assert entry["args"] == ["server/main.py", "/x", "/y z", "--size=10"]
    assert entry["env"] == {"KEY": "${KEY}", "FAST": "true"}
    assert entry_of(document, key=("${KEY}",), city=("${",))["args"][1:] == ["/home/me/a", "--size=10", "--city=$${"]
    assert [(each.key, each.is_required, each.is_secret) for each in ask_about(opened(document))] == [
        ("folders", False, False), ("key", True, True),
        ("size", False, False), ("fast", False, False), ("city", False, False),
    ]  # fmt: skip


@contextlib.contextmanager
def serving_bytes(files: Mapping[str, bytes]) -> Iterator[str]:
    """Serve files over HTTP on loopback; yields the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = files.get(self.path.partition("?")[0])
            self.send_response(404 if content is None else 200)
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that it has there
            """Write nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


# --- the command -----------------------------------------------------------------------------------------------


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The directory of the unpacked bundles, which is not there yet."""
    monkeypatch.setenv(
        "WIN_PD_OVERRIDE_LOCAL_APPDATA" if sys.platform == "win32" else "XDG_DATA_HOME", str(tmp_path / "data")
    )
    return bundles_dir()


def add(cli: CliRunner, content: bytes, *options: str, code: int = 0, **env: str) -> CommandResult:
    file = cli.folder / "weather.mcpb"
    file.write_bytes(content)
    done = cli.run("add", str(file), *options, **env)
    assert done.code == code, done.err
    return done


def entries(cli: CliRunner) -> Json:
    document: Json = jsonc.loads(cli.config.read_text())
    return document["mcpServers"]


def real_bundle() -> bytes:
    files = {f"server/{each.name}": each.read_bytes() for each in UPSTREAMS.glob("*.py")}
    server = starting(sys.executable, "${__dirname}/server/odd.py", TOKEN="${user_config.key}")
    server["mcp_config"]["command"] = "python3"
    return archive(manifest(server=server, user_config={"key": SETTINGS["key"]}), files)


def test_a_bundle_is_added_answers_a_call_and_is_removed_as_a_whole(
    cli: CliRunner, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    cli.configure({})
    content = real_bundle()
    (cli.folder / "secret").write_text("sk-do-not-show-this\n")

    done = add(cli, content, "--yes", "--set", f"key=@{cli.folder / 'secret'}")

    assert hashlib.sha256(content).hexdigest() in done.err
    assert f"runs: {'python' if sys.platform == 'win32' else 'python3'} " in done.err
    assert "sk-do-not" not in done.err + done.out + cli.config.read_text()
    entry = entries(cli)["weather"]
    [folder] = data.iterdir()
    assert entry["x-bundle"] == {
        "name": "weather", "version": "1.0.0", "sha256": hashlib.sha256(content).hexdigest(), "folder": folder.name,
    }  # fmt: skip
    assert entry.get("sandbox") == ("write" if sys.platform == "linux" else None)
    called = cli.run("call", "weather", "env")
    assert called.code == 0, called.err
    assert json.loads(called.out)["TOKEN"] == "sk-do-not-show-this"

    removed = cli.run("remove", "weather")

    assert removed.code == 0
    assert entries(cli) == {}
    assert list(data.iterdir()) == []


def test_another_digest_than_the_one_that_was_given_changes_nothing(cli: CliRunner, data: Path) -> None:
    before = cli.config.read_bytes()
    done = add(cli, archive(manifest()), "--yes", "--sha256", "0" * 64, code=1)
    assert hashlib.sha256((cli.folder / "weather.mcpb").read_bytes()).hexdigest() in done.err
    assert cli.config.read_bytes() == before
    assert not data.exists()


def test_a_hostile_bundle_changes_nothing_outside(cli: CliRunner, data: Path, tmp_path: Path) -> None:
    def files() -> dict[Path, bytes]:
        return {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file() and each.suffix != ".mcpb"}

    before = files()
    for change in (with_member("../../evil"), with_member("link", mode=stat.S_IFLNK | 0o777, content="../..")):
        add(cli, archive(manifest(), change=change), "--yes", code=1)
    assert {path: content for path, content in files().items() if "state" not in path.parts} == {
        path: content for path, content in before.items() if "state" not in path.parts
    }
    assert not data.exists()


def test_a_missing_answer_is_asked_for_and_nothing_is_unpacked(cli: CliRunner, data: Path) -> None:
    done = add(cli, real_bundle(), "--yes", code=2)
    assert "key (required; secret)" in done.err
    assert not data.exists()
    done = add(
        cli,
        archive(manifest(server=ASKING, user_config=SETTINGS)),
        "--yes",
        "--set",
        "key=${K}",
        "--set",
        "size=101",
        code=1,
    )
    assert "`size` must be from 1 to 100" in done.err


def test_a_replaced_bundle_leaves_no_files(cli: CliRunner, data: Path) -> None:
    cli.configure({})
    add(cli, archive(manifest()), "--yes")
    first = entries(cli)["weather"]["x-bundle"]["folder"]
    add(cli, archive(manifest()), "--yes", code=2)
    add(cli, archive(manifest(version="2")), "--yes", "--replace")

    [left] = data.iterdir()
    assert left.name == entries(cli)["weather"]["x-bundle"]["folder"] != first


@pytest.mark.parametrize("folder", ["..", "../../home", "", "/", 5, None, "0" * 15])
def test_an_entry_that_names_another_folder_deletes_nothing(cli: CliRunner, data: Path, folder: Json) -> None:
    kept = data / ("0" * 15)
    kept.mkdir(parents=True)
    cli.configure({"weather": {"command": "x", "x-bundle": {"folder": folder}}})

    assert cli.run("remove", "weather").code == 0
    assert kept.is_dir()


def test_a_download_that_nobody_would_see_needs_its_digest(cli: CliRunner) -> None:
    done = cli.run("add", "https://127.0.0.1:9/weather.mcpb", "--yes")
    assert (done.code, "--sha256" in done.err) == (2, True)
    done = cli.run("add", "http://192.0.2.1/weather.mcpb", "--yes", "--sha256", "0" * 64)
    assert "is not https" in done.err


def test_a_bundle_is_downloaded_and_its_digest_checked(cli: CliRunner, data: Path) -> None:
    cli.configure({})
    content = archive(manifest())
    with serving_bytes({"/weather.mcpb": content}) as url:
        missing = cli.run("add", f"{url}/other.mcpb", "--yes", "--sha256", "0" * 64)
        other = cli.run("add", f"{url}/weather.mcpb", "--yes", "--sha256", "0" * 64)
        done = cli.run("add", f"{url}/weather.mcpb?x=1", "--yes", "--sha256", hashlib.sha256(content).hexdigest())

    assert (missing.code, "HTTP 404" in missing.err) == (1, True)
    assert (other.code, "SHA-256" in other.err) == (1, True)
    assert done.code == 0, done.err
    assert "weather" in entries(cli)

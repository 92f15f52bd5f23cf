"""What a file may be like on disk: marks, encodings, sizes, depths, and everything that is no file at all."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from dynamic_mcp.importer.formats import parser
from dynamic_mcp.importer.formats.parser import UnreadableError
from dynamic_mcp.system.file_reader import LARGEST_BYTES

SERVERS = {"mcpServers": {"größe": {"command": "npx"}}}
TEXT = json.dumps(SERVERS, ensure_ascii=False, indent=2)


def refusal(file: Path) -> str:
    """Return why a file cannot be read."""
    with pytest.raises(UnreadableError) as caught:
        parser.load(file)
    return str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode(),
        TEXT.encode("utf-8-sig"),
        TEXT.encode("utf-16"),
        TEXT.encode("utf-16-le"),
        TEXT.encode("utf-16-be"),
        TEXT.replace("\n", "\r\n").encode(),
        f"// a comment\r\n{TEXT[:-1]},/* and more */}}".encode(),
        b"\xfe\xff" + TEXT.encode("utf-16-be"),
    ],
    ids=["utf-8", "mark", "utf-16", "utf-16-le", "utf-16-be", "crlf", "comments", "utf-16-be with a mark"],
)
def test_the_same_settings_are_read_however_they_were_saved(data: bytes, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_bytes(data)
    assert parser.load(file).value == SERVERS


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", '{"a": 1,\n  "b" 2}', "line 2, column 7: is not JSON: expecting `:` delimiter"),
        ("a.json", '{"a": "\n"}', "line 1, column 8: is not JSON: invalid control character"),
        ("a.json", '{"a": "\\ud800"}', "line 1, column 8: is not JSON: half of a surrogate pair"),
        ("a.jsonc", '{"a": 1 /* no end', "line 1, column 9: is not JSON: unterminated comment"),
        ("a.json", "[" * 200_000, "line 1, column 1: is not JSON: nested too deeply"),
        ("a.toml", 'a = 1\nb = "x', "line 2, column 7: is not TOML: illegal character `\\n`"),
        ("a.toml", "a = 1\na = 2\n", "line 2, column 6: is not TOML: cannot overwrite a value"),
        ("a.yaml", "a: [1\nb: 2", "line 2, column 2: is not YAML: did not find expected `,` or `]`"),
        ("a.yaml", "a: *b", "line 1, column 4: is not YAML: `*b` refers to nothing before it"),
        ("a.yaml", "[" * 10_000, "line 1, column 501: is not YAML: nested more than 500 levels deep"),
        ("a.json", "", "is empty"),
        ("a.toml", " \r\n", "is empty"),
    ],
)
def test_a_fault_is_said_with_its_line_and_column(name: str, text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    assert refusal(file).startswith(message.rpartition(": illegal")[0] or message)


def test_a_toml_file_that_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("a = " + "[" * 10_000, encoding="utf-8")
    assert "is" in refusal(file)


def test_a_byte_that_is_no_text_is_said_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_bytes(b'{"a":\n "\xff"}')
    assert refusal(file) == "line 2, column 3: is not UTF-8"


def test_of_two_equal_keys_the_last_counts_and_their_place_is_known(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"a": {"command": "one"}, "a": {"command": "two"}}}', encoding="utf-8")
    document = parser.load(file)
    assert document.value == {"mcpServers": {"a": {"command": "two"}}}
    assert [where for where, _ in document.remarks] == ["mcpServers.a"]


@pytest.mark.parametrize("suffix", ["json", "toml", "yaml"])
def test_five_megabytes_are_read(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"mcp.{suffix}"
    count = 5 * 1024 * 1024 // 40
    lines = {
        "json": lambda i: f'"k{i:07}": "xxxxxxxxxxxxxxxxxxxxxxxxx",',
        "toml": lambda i: f'k{i:07} = "xxxxxxxxxxxxxxxxxxxxxxxxx"',
        "yaml": lambda i: f"k{i:07}: xxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    }
    body = "\n".join(map(lines[suffix], range(count)))
    file.write_text(f"{{{body}\n}}" if suffix == "json" else body, encoding="utf-8")
    value = parser.load(file).value
    assert isinstance(value, dict)
    assert len(value) == count


def test_more_than_the_bound_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    with file.open("wb") as stream:
        stream.truncate(LARGEST_BYTES + 1)
    assert refusal(file) == "is larger than 64 MiB"


def test_aliases_and_merges_that_multiply_are_refused(tmp_path: Path) -> None:
    for first, item in (("[x, y]", "[{}]"), ("{x: 1, y: 2}", "{{<<: [{}]}}")):
        lines = [f"k0: &k0 {first}"]
        lines += [f"k{i}: &k{i} " + item.format(", ".join([f"*k{i - 1}"] * 9)) for i in range(1, 12)]
        file = tmp_path / "bomb.yaml"
        file.write_text("\n".join(lines), encoding="utf-8")
        assert "its aliases expand to too many values" in refusal(file)


def test_yaml_scalars_mean_what_version_1_2_says_and_tags_make_nothing(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(
        "a: [yes, on, true, 0o17, 1_0, 010, ~, 2024-01-01, '1', !!python/object:os.system x, 1e2]", encoding="utf-8"
    )
    assert parser.load(file).value == {"a": ["yes", "on", True, 15, "1_0", 10, None, "2024-01-01", "1", "x", 100.0]}


@pytest.mark.posix_only("pipes, sockets and devices are files on POSIX systems only")
def test_what_is_no_regular_file_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "broken").symlink_to(tmp_path / "nothing")
    (tmp_path / "directory").mkdir()
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "s"))
    server.close()
    for name in ("fifo", "link", "s"):
        assert refusal(tmp_path / name) == "is not a regular file"
    assert refusal(Path("/dev/null")) == "is not a regular file"
    assert refusal(tmp_path / "loop").startswith("cannot be read:")
    assert refusal(tmp_path / "broken") == "is a broken link"
    assert refusal(tmp_path / "none") == "does not exist"
    assert refusal(tmp_path / "directory") == "is a directory"
    assert refusal(tmp_path / "a\0b") == "cannot be read: not a valid file name"


@pytest.mark.posix_only("links need a privilege on Windows")
def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text(TEXT, encoding="utf-8")
    (tmp_path / "mcp.json").symlink_to("real.json")
    assert parser.load(tmp_path / "mcp.json").value == SERVERS


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ("[a]\nb = 1", {"a": {"b": 1}}),
        ("a:\n  b: 1", {"a": {"b": 1}}),
        ("// c\n{a: 'b',}", {"a": "b"}),
    ],
)
def test_without_a_suffix_the_format_is_found_out(text: str, value: object, tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(text, encoding="utf-8")
    assert parser.load(file).value == value

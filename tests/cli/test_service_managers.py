"""The files of the service say what systemd and launchd then start, whatever the paths are."""

from __future__ import annotations

import os
import plistlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dynamic_mcp.cli import service_managers
from dynamic_mcp.cli.service_managers import TaskScheduler, task_bytes
from dynamic_mcp.errors import DynamicMcpError

PROGRAM = "/usr/bin/dynamic-mcp"
# What has a meaning in a unit, or would end a line of it.
HOSTILE = [
    "/home/a b/c.json",
    "/srv/100%h/%%/%.json",
    '/srv/it\'s "quoted".json',
    "/srv/$HOME/${HOME}/$$.json",
    "/srv/back\\slash\\n\\x41\\",
    "/srv/line\nExecStart=/bin/false\n.json",
    "/srv/\t;\x01\x7f.json",
    "/srv/; rm",
    "/srv/日本/é.json",
    "/srv/#.json",
]
SPECIFIERS = {"h": "/home/somebody", "n": "a.service"}

characters = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
texts = st.text(st.sampled_from("abc \"'\\%$;#{}\n\t") | characters, max_size=20)


def command_of(unit: str) -> list[str]:
    """Return what systemd starts: words, escapes and specifiers first, then the variables of all but the program."""
    (line,) = [line for line in unit.split("\n") if line.startswith("ExecStart=")]
    program, *arguments = map(expand_specifiers, split(line.removeprefix("ExecStart=")))
    assert not re.search(r"[\"'\\\x00-\x1f\x7f]", program), "systemd refuses such a program"
    return [program, *map(expand_variables, arguments)]


def split(line: str) -> Iterator[str]:
    """Yield the quoted words of a line (systemd.syntax(7), QUOTING)."""
    position = 0
    while position < len(line):
        word = re.compile(r'"((?:[^"\\]|\\.)*)"(?: |$)').match(line, position)
        assert word is not None, f"not a quoted word: {line[position:]}"
        yield re.sub(r"\\(x[0-9a-f]{2}|.)", unescape, word[1])
        position = word.end()


def unescape(match: re.Match[str]) -> str:
    escaped = match[1]
    assert escaped[0] in 'x"\\', f"not an escape that is used here: {escaped}"
    return chr(int(escaped[1:], 16)) if escaped[0] == "x" else escaped


def expand_specifiers(word: str) -> str:
    return re.sub(r"%(.)", lambda match: "%" if match[1] == "%" else SPECIFIERS[match[1]], word)


def expand_variables(word: str) -> str:
    return re.sub(r"\$(\$|\{?\w*\}?)", lambda match: "$" if match[1] == "$" else "SUBSTITUTED", word)


@given(texts)
@example("")
def test_a_unit_starts_the_same_words_whatever_they_hold(text: str) -> None:
    unit = service_managers.unit_text([PROGRAM, "daemon", f"/{text}"], Path("/c"), {})

    assert command_of(unit) == [PROGRAM, "daemon", f"/{text}"]


@given(texts)
def test_a_program_of_any_name_is_started(text: str) -> None:
    program = f"/{text}"

    started = command_of(service_managers.unit_text([program, "daemon", "run"], Path("/c"), {}))

    if started[0] == "/bin/sh":
        assert started[1:3] == ["-c", 'exec "$0" "$@"']
        started = started[3:]
    assert started == [program, "daemon", "run"]


@given(texts, texts)
def test_no_path_adds_a_line_to_the_unit(config: str, folder: str) -> None:
    plain = service_managers.unit_text([PROGRAM, "c"], Path("/c"), {"XDG_STATE_HOME": "/s"})

    unit = service_managers.unit_text([PROGRAM, f"/{config}"], Path(f"/{config}"), {"XDG_STATE_HOME": f"/{folder}"})

    assert [line.partition("=")[0] for line in unit.split("\n")] == [
        line.partition("=")[0] for line in plain.split("\n")
    ]
    assert not any(line.endswith("\\") for line in unit.split("\n"))


def test_a_byte_that_is_not_utf_8_is_written_as_an_escape() -> None:
    unit = service_managers.unit_text([PROGRAM, "/srv/\udcff.json"], Path("/srv/\udcff.json"), {})

    assert unit.encode().count(b"\\xff") == 1


def test_each_config_has_a_service_of_its_own() -> None:
    one, other = Path("/home/a/dynamic-mcp.json"), Path("/home/b/dynamic-mcp.json")

    assert service_managers.service_name(one) == service_managers.service_name(Path(str(one)))
    assert service_managers.service_name(one) != service_managers.service_name(other)
    assert service_managers.job_label(one) != service_managers.job_label(other)


# --- read by systemd itself ------------------------------------------------------------------------------


@pytest.fixture
def analyze(tmp_path: Path) -> Iterator[list[str]]:
    """The command with which systemd checks a unit, and with debug messages tells how it reads it."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("`systemd-analyze` is not installed")
    with tempfile.TemporaryDirectory() as runtime:  # short, for the sockets of other units
        yield [
            "env",
            f"XDG_RUNTIME_DIR={runtime}",
            f"HOME={tmp_path}",
            "SYSTEMD_LOG_TARGET=console",
            "systemd-analyze",
            "--user",
            "--man=no",
            "verify",
        ]


@pytest.mark.parametrize("path", HOSTILE)
def test_systemd_finds_nothing_wrong_with_the_unit(analyze: list[str], tmp_path: Path, path: str) -> None:
    unit = tmp_path / service_managers.service_name(Path(path))
    unit.write_text(
        service_managers.unit_text(["/bin/true", "-c", path], Path(path), {"XDG_STATE_HOME": path}), encoding="utf-8"
    )

    done = subprocess.run([*analyze, str(unit)], capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("path", HOSTILE)
def test_systemd_reads_the_command_and_the_variables_as_they_were_meant(
    analyze: list[str], tmp_path: Path, path: str
) -> None:
    unit = tmp_path / "a.service"
    config = Path("/srv/100%h/dynamic-mcp.json")
    unit.write_text(
        service_managers.unit_text(["/bin/true", "-c", path], config, {"XDG_STATE_HOME": "/100% \\x"}),
        encoding="utf-8",
    )

    done = subprocess.run(
        ["env", "SYSTEMD_LOG_LEVEL=debug", *analyze, str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    (command,) = re.findall(r"Command Line: (.*)", done.stdout + done.stderr)
    # a doubled dollar sign becomes one when the program is started, which is after this
    assert read_as_shown(command) == ["/bin/true", "-c", path.replace("$", "$$")]
    assert f'Description: dynamic-mcp for "{config}"\n' in done.stdout + done.stderr
    assert "Environment: XDG_STATE_HOME=/100% \\x\n" in done.stdout + done.stderr


def test_systemd_starts_the_unit_with_each_login(tmp_path: Path) -> None:
    if shutil.which("systemctl") is None:
        pytest.skip("`systemctl` is not installed")
    units = tmp_path / "systemd" / "user"
    units.mkdir(parents=True)
    unit = units / service_managers.service_name(Path("/c"))
    unit.write_text(service_managers.unit_text(["/bin/true"], Path("/c"), {}), encoding="utf-8")
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "SYSTEMD_OFFLINE": "1"}

    subprocess.run(["systemctl", "--user", "enable", unit.name], env=environment, timeout=60, check=True)

    assert (units / "default.target.wants" / unit.name).resolve() == unit


def read_as_shown(line: str) -> list[str]:
    """Return the words of a command line as systemd prints it, quoted for a shell and with C escapes."""
    codes = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

    def character(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code, 8)) if code.isdecimal() else codes.get(code, code)

    words = re.findall(r'"((?:[^"\\]|\\.)*)"|(\S+)', line)
    return [re.sub(r"\\([0-7]{3}|.)", character, quoted or plain) for quoted, plain in words]


# --- launchd ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/home/a b/c.json", "/srv/<&>\"'%$\\.json", "/srv/日本.json"])
def test_a_job_starts_the_same_words(path: str) -> None:
    job = plistlib.loads(
        service_managers.job_bytes([PROGRAM, "-c", path], Path(path), {"XDG_STATE_HOME": path}, home=Path("/h"))
    )

    assert job["ProgramArguments"] == [PROGRAM, "-c", path]
    assert job["EnvironmentVariables"] == {"XDG_STATE_HOME": path}
    assert job["Label"] == service_managers.job_label(Path(path))
    assert job["RunAtLoad"] is True
    assert job["KeepAlive"] == {"SuccessfulExit": False}


def test_a_task_starts_the_same_words_for_the_user_who_logs_on() -> None:
    command = ["C:\\a & b\\pythonw.exe", "-c", "C:\\Users\\Ann <1>\\c.json"]
    content = task_bytes(command, Path("c.json"), "S-1-5-21-7").decode("utf-16")
    # without the declaration, which says UTF-16
    task = ElementTree.fromstring(content.partition("\n")[2])  # noqa: S314 - it is ours

    found = {element.tag.partition("}")[2]: element.text for element in task.iter()}
    assert found["Command"] == command[0]
    assert found["Arguments"] == '-c "C:\\Users\\Ann <1>\\c.json"'
    assert (found["UserId"], found["RunLevel"]) == ("S-1-5-21-7", "LeastPrivilege")
    assert found["LogonType"] == "InteractiveToken"
    assert found["ExecutionTimeLimit"] == "PT0S"


def test_a_task_is_ended_by_its_daemon_before_it_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        return subprocess.CompletedProcess(command, 0, '"\\dynamic-mcp","267009"', "")

    monkeypatch.setattr(subprocess, "run", run)
    scheduler = TaskScheduler(tmp_path / "c.json", {}, "S-1-5-21-7")

    scheduler.start()
    assert scheduler.is_running()
    scheduler.stop()

    told = [command[1] if command[0] == "schtasks" else " ".join(command[4:6]) for command in calls]
    assert told == ["daemon stop", "/end", "/create", "/run", "/query", "daemon stop", "/end", "/delete"]
    assert calls[2] == ["schtasks", "/create", "/f", "/tn", scheduler.name, "/xml", str(scheduler.file)]


# launchd.plist(5): the type of each key that a job has
LAUNCHD_KEYS: dict[str, type] = {
    "Label": str,
    "ProgramArguments": list,
    "RunAtLoad": bool,
    "KeepAlive": dict,
    "ThrottleInterval": int,
    "ExitTimeOut": int,
    "ProcessType": str,
    "WorkingDirectory": str,
    "EnvironmentVariables": dict,
}


def test_a_job_has_only_keys_and_values_that_launchd_knows() -> None:
    job = plistlib.loads(service_managers.job_bytes([PROGRAM], Path("/c"), {"XDG_STATE_HOME": "/s"}, home=Path("/h")))
    assert {key: type(value) for key, value in job.items()} == LAUNCHD_KEYS
    assert job["ProcessType"] in ("Background", "Standard", "Adaptive", "Interactive")
    assert job["KeepAlive"].keys() <= {"SuccessfulExit", "Crashed", "PathState", "OtherJobEnabled"}
    assert all(type(each) is str for each in (*job["ProgramArguments"], *job["EnvironmentVariables"].values()))


def test_a_path_that_a_job_cannot_hold_is_refused_with_words() -> None:
    with pytest.raises(DynamicMcpError, match="cannot hold this path"):
        service_managers.job_bytes([PROGRAM, "/srv/\x01"], Path("/srv/\x01"), {}, home=Path("/h"))

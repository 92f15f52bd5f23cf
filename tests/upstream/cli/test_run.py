"""One run of a program: its end, its output, and that nothing of it is left."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.config.resolved import Program
from dynamic_mcp.upstream.cli.run import MAX_OUTPUT_BYTES, CapturedOutput, CommandResult, clean, run
from tests.program import BOUND_S

if sys.platform == "win32":
    pytest.skip("process groups and signals are of Unix", allow_module_level=True)

# Starts another process of its group, says on stderr who both are, and waits.
FAMILY = """
import os, signal, sys
child = os.fork()
if child:
    print(os.getpid(), child, file=sys.stderr, flush=True)
while True:
    signal.pause()
"""
# The same, and neither ends when asked to.
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" + FAMILY
# Leaves a file when it is asked to end. No shell does this: between a fork and an exec its child may lose the signal,
# and then the shell waits for that child before it acts on its own.
TIDY = """
import os, pathlib, signal, sys
signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path({file!r}).touch(), os._exit(0)))
print(file=sys.stderr, flush=True)
while True:
    signal.pause()
"""
# Exits at once, and leaves a process behind that holds its output open.
LEAVING = """
import os, signal, sys
child = os.fork()
if child:
    print("done", child, flush=True)
else:
    signal.pause()
"""


ENV = {"PATH": os.defpath}
linux_only = pytest.mark.skipif(
    sys.platform != "linux", reason="processes are found by their environment on Linux only"
)


def script(text: str) -> Program:
    return Program(sys.executable, ("-c", text), ENV, None)


async def outcome_of(
    text: str, *, stdin: str | None = None, timeout_s: float = BOUND_S, limit: int = 10_000
) -> CommandResult:
    async with asyncio.timeout(BOUND_S):
        return await run(script(text), stdin=stdin, timeout_s=timeout_s, output_limit=limit)


def is_running(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")


async def list_descriptors() -> dict[str, str]:
    """Return what is open, without the pipes that the loop closes in its next turns, as those of a silent program."""
    for _ in range(3):
        await asyncio.sleep(0)
    return read_descriptors()


def read_descriptors() -> dict[str, str]:
    links = [*Path("/dev/fd").iterdir()]
    return {link.name: str(link.readlink()) for link in links if link.is_symlink()}


async def test_what_a_program_writes_and_how_it_ends_is_told() -> None:
    outcome = await outcome_of("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")

    assert (outcome.code, outcome.stdout.text(), outcome.stderr.text()) == (3, "out\n", "err\n")
    assert not outcome.stopped


async def test_a_signal_that_ends_a_program_is_told_as_shells_do() -> None:
    outcome = await outcome_of("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")

    assert outcome.code == 128 + signal.SIGKILL


async def test_without_a_text_there_is_nothing_to_read_and_no_pipe() -> None:
    outcome = await outcome_of(
        "import os, stat, sys; print(stat.S_ISCHR(os.fstat(0).st_mode), sys.stdin.read() == '')"
    )

    assert outcome.stdout.text() == "True True\n"


async def test_a_long_text_is_read_to_its_end() -> None:
    text = "x" * 3_000_000 + "\ud800"

    outcome = await outcome_of("import sys; print(len(sys.stdin.read()))", stdin=text)

    assert outcome.stdout.text() == "3000001\n"


@pytest.mark.parametrize(
    "program",
    [
        FAMILY,
        pytest.param(STUBBORN, marks=pytest.mark.full),
        pytest.param(STUBBORN.replace("child = os.fork()", "child = os.fork() or os.setsid()"), marks=linux_only),
    ],
    ids=["family", "stubborn", "stubborn-in-another-session"],
)
async def test_a_run_that_is_cancelled_leaves_no_process(program: str) -> None:
    said = bytearray()
    has_said = asyncio.Event()

    def take(data: bytes) -> None:
        said.extend(data)
        if b"\n" in said:
            has_said.set()

    running = asyncio.create_task(
        run(script(program), stdin=None, timeout_s=BOUND_S, output_limit=1000, on_stderr=take)
    )
    async with asyncio.timeout(BOUND_S):
        await has_said.wait()
        pids = [int(word) for word in said.split()]
        assert all(map(is_running, pids))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    assert [pid for pid in pids if is_running(pid)] == []


async def test_a_program_that_takes_too_long_is_ended_and_what_it_wrote_is_kept() -> None:
    program = Program("/bin/sh", ("-c", "echo so far; sleep 60 & echo $$ $! >&2; wait"), ENV, None)

    async with asyncio.timeout(BOUND_S):
        outcome = await run(program, stdin=None, timeout_s=2, output_limit=1000)

    pids = [int(word) for word in outcome.stderr.text().split()]
    assert outcome.code is None
    assert "did not end within 2 s" in outcome.stopped
    assert outcome.stdout.text() == "so far\n"
    assert len(pids) == 2
    assert [pid for pid in pids if is_running(pid)] == []


async def test_a_program_is_asked_to_end_before_it_is_killed(tmp_path: Path) -> None:
    tidied = tmp_path / "tidied"
    is_ready = asyncio.Event()
    running = asyncio.create_task(
        run(
            script(TIDY.format(file=str(tidied))),
            stdin=None,
            timeout_s=BOUND_S,
            output_limit=1000,
            on_stderr=lambda data: is_ready.set(),
        )
    )
    async with asyncio.timeout(BOUND_S):
        await is_ready.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    assert tidied.exists()


async def test_what_a_program_leaves_behind_is_ended_with_it() -> None:
    outcome = await outcome_of(LEAVING)

    word, pid = outcome.stdout.text().split()
    assert (outcome.code, word) == (0, "done")
    assert not is_running(int(pid))


@linux_only
async def test_what_leaves_the_group_is_ended_too() -> None:
    outcome = await outcome_of(LEAVING.replace("    signal.pause()", "    os.setsid(); signal.pause()"))

    assert not is_running(int(outcome.stdout.text().split()[1]))


async def test_a_program_that_writes_without_an_end_is_ended() -> None:
    outcome = await outcome_of("import os\nwhile True: os.write(1, b'y' * 65536)", timeout_s=BOUND_S)

    assert "MiB" in outcome.stopped
    assert outcome.stdout.is_cut
    assert len(outcome.stdout.text()) < 11_000
    assert outcome.stdout.size < 2 * MAX_OUTPUT_BYTES


async def test_all_output_of_a_program_that_has_exited_is_read() -> None:
    outcome = await outcome_of("import os; os.write(1, b'a' * 60000)", limit=100_000)

    assert outcome.stdout.size == 60_000


async def test_what_cannot_be_started_is_an_error_of_the_system() -> None:
    with pytest.raises(FileNotFoundError):
        await run(Program("/no/such", (), {}, None), stdin="x", timeout_s=1, output_limit=1000)


async def test_runs_leave_no_descriptor_open() -> None:
    await outcome_of("pass", stdin="x")
    before = await list_descriptors()
    for _ in range(5):
        await outcome_of("pass", stdin="x")
        await outcome_of("pass")

    assert (await list_descriptors()).items() <= before.items()


def output(*chunks: bytes, limit: int = 1000) -> CapturedOutput:
    made = CapturedOutput(limit)
    for chunk in chunks:
        made.feed(chunk)
    return made


def test_what_is_within_the_limit_stays_whole() -> None:
    made = output(b"a" * 600, b"b" * 400)

    assert made.text() == "a" * 600 + "b" * 400
    assert not made.is_cut


def test_of_more_both_ends_are_kept_with_what_is_missing() -> None:
    made = output(b"begin" + b"x" * 5000, b"y" * 5000 + b"end")

    text = made.text()
    assert made.is_cut
    assert text.startswith("beginx")
    assert text.endswith("yend")
    assert "… (9008 bytes left out) …" in text


def test_a_cut_does_not_break_a_character() -> None:
    for shift in range(4):
        text = output(b"a" * shift + "€".encode() * 2000).text()
        assert "\ufffd" not in text


@given(chunks=st.lists(st.binary(max_size=3000), max_size=8), limit=st.integers(1000, 3000))
def test_no_more_is_kept_than_the_limit_whatever_comes(chunks: list[bytes], limit: int) -> None:
    made = output(*chunks, limit=limit)

    assert made.size == sum(map(len, chunks))
    assert made.is_cut == (made.size > limit)
    assert len(made.text()) <= limit + 50


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x1b[31mred\x1b[0m", "red"),
        (b"\x1b]0;title\x07x", "x"),
        (b"\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1b(Bx\x1b=", "x"),
        (b"a\tb\r\nc", "a\tb\r\nc"),
        (b"\x00\x07\x7f", "\ufffd" * 3),
        ("\x9b31mred\x85".encode(), "\ufffd31mred\ufffd"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ("ü 日本".encode(), "ü 日本"),
    ],
)
def test_what_is_meant_for_a_terminal_is_taken_out(data: bytes, text: str) -> None:
    assert clean(data) == text

"""Programs are asked for secrets when a server starts, and what they answer is shown nowhere."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from dynamic_mcp.config.resolved import Program, Remote
from dynamic_mcp.config.secret_programs import SecretLookup, SecretLookups, TextWithSecrets
from dynamic_mcp.errors import Unreachable
from dynamic_mcp.upstream.lookups import look_up
from dynamic_mcp.upstream.mask import mask_of
from tests.fakes import Json, group_config
from tests.program import BOUND_S
from tests.secret_vault import SECRET, Vault


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    (tmp_path / "vault").mkdir()
    return Vault(tmp_path / "vault")


async def filled(upstream: Program | Remote) -> Program | Remote:
    async with asyncio.timeout(BOUND_S):
        found = (await look_up(group_config(), upstream)).upstream
    assert isinstance(found, Program | Remote)
    return found


async def failure(vault: Vault, code: str, **lookup: Json) -> Unreachable:
    """Return the error of a server whose secret is asked for when the program does this."""
    vault.answers(code)
    with pytest.raises(Unreachable) as caught:
        await filled(vault.program("A", **lookup))
    return caught.value


# --- what is asked ---------------------------------------------------------------------------------------------


async def test_the_answers_are_filled_in_where_their_references_are(vault: Vault) -> None:
    vault.answers("print('<' + asked + '>')")
    program = vault.program("A", "B")

    found = await filled(program)

    assert isinstance(found, Program)
    assert found.env == {"A": "<<A>>", "B": "<<B>>"}
    assert sorted(vault.asked) == ["A", "B"]


async def test_headers_and_arguments_are_filled_in(vault: Vault) -> None:
    lookups = vault.program("one").lookups
    assert lookups is not None
    header = TextWithSecrets("headers", "Authorization", ("Bearer ", "vault:one", ""))
    argument = TextWithSecrets("args", 1, ("--key=", "vault:one", ""))
    far = Remote(
        None, "https://x", {"Authorization": "", "Other": "b"}, lookups=SecretLookups(lookups.secrets, (header,), ".")
    )
    near = Program("x", ("a", "b"), {}, None, lookups=SecretLookups(lookups.secrets, (argument,), "."))

    filled_far, filled_near = await filled(far), await filled(near)

    assert isinstance(filled_far, Remote)
    assert isinstance(filled_near, Program)
    assert filled_far.headers == {"Authorization": f"Bearer {SECRET}", "Other": "b"}
    assert filled_near.args == ("a", f"--key={SECRET}")


async def test_they_are_asked_at_the_same_time(vault: Vault) -> None:
    # each waits until both are there
    vault.answers("while len((folder / 'asked').read_text().split()) < 2: time.sleep(0.01)\nprint(asked)")

    assert (await filled(vault.program("A", "B"))) is not None


@pytest.mark.parametrize(
    ("code", "output", "secret"),
    [
        ("print('a b ')", "line", "a b "),
        ("sys.stdout.buffer.write(b'a\\r\\n')", "line", "a"),
        ("sys.stdout.write('a')", "line", "a"),
        ("print('first\\nuser: me')", "first_line", "first"),
        ("print('-----\\nkey\\n-----')", "text", f"-----{os.linesep}key{os.linesep}-----"),
        ("print('a', end='\\n\\n')", "text", f"a{os.linesep}"),
        ("print(sys.stdin.read() + 'no input')", "line", "no input"),
        ("import os; print(os.getcwd() == str(folder))", "line", "True"),
    ],
)
async def test_the_secret_is_the_output_without_its_last_line_end(
    vault: Vault, code: str, output: str, secret: str
) -> None:
    vault.answers(code)

    found = await filled(vault.program("A", output=output))

    assert isinstance(found, Program)
    assert found.env["A"] == f"<{secret}>"


async def test_a_member_of_json_is_the_secret(vault: Vault) -> None:
    vault.answers('print(\'{"id": 1, "value":\\n "s"}\')')
    found = await filled(vault.program("A", member="value"))
    assert isinstance(found, Program)
    assert found.env["A"] == "<s>"


# --- what goes wrong -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("print('hunter22'); sys.exit('[ERROR] not signed in')", "exited with code 1: [ERROR] not signed in"),
        ("sys.exit(7)", "exited with code 7"),
        ("pass", "printed nothing"),
        ("print(' ')", "printed nothing"),
        ("print('hunter22\\nhunter23')", "printed 2 lines"),
        ("print('hunter22' * 10000)", "more than 64000 bytes"),
        ("sys.stdout.buffer.write(b'hunter22\\xff')", "not UTF-8"),
        ("print('hunter22\\0')", "a NUL character"),
        ("print('hunter22'); sys.exit('bad token hunter22')", "bad token ***"),
        ("print('hunter22'); sys.exit('token: ghp_hunter22hunter22hunter22')", "exited with code 1"),
    ],
)
async def test_an_error_names_the_program_and_never_what_it_printed(vault: Vault, code: str, why: str) -> None:
    error = await failure(vault, code)

    assert "no answer for `${vault:A}`" in error.message
    assert f"`{Path(sys.executable).name}`" in error.message
    assert why in error.message
    assert "hunter2" not in str(error)
    assert error.hint
    assert not error.final


async def test_bad_json_is_not_shown(vault: Vault) -> None:
    error = await failure(vault, 'print(\'{"key": "hunter22"}\')', member="value")
    assert "no JSON with `value`" in error.message
    assert "hunter" not in str(error)


async def test_all_failures_are_reported_at_once(vault: Vault) -> None:
    vault.answers("sys.exit('no ' + asked)")
    with pytest.raises(Unreachable, match=r"no A.*no B"):
        await filled(vault.program("A", "B"))


async def test_a_missing_program_is_named(vault: Vault) -> None:
    lookups = SecretLookups((SecretLookup("op:x", ("no-such-program", "x")),), (), ".")
    with pytest.raises(Unreachable, match="the command `no-such-program` was not found"):
        await filled(Program("x", (), {}, None, lookups=lookups))


async def test_a_header_takes_no_line_break(vault: Vault) -> None:
    vault.answers("print('a\\nhunter22')")
    lookup = SecretLookup("vault:A", (*vault.command, "A"), "text")
    text = TextWithSecrets("headers", "X", ("", "vault:A", ""))
    with pytest.raises(Unreachable, match="line break") as caught:
        await filled(Remote(None, "https://x", {"X": ""}, lookups=SecretLookups((lookup,), (text,), ".")))
    assert "hunter" not in str(caught.value)


@pytest.mark.skipif(sys.platform == "win32", reason="asks for the end of a process by its number")
async def test_a_program_that_is_no_longer_waited_for_is_ended(vault: Vault, tmp_path: Path) -> None:
    pids = tmp_path / "pid"
    os.mkfifo(pids)
    vault.answers(f"import os; open({str(pids)!r}, 'w').write(str(os.getpid())); time.sleep(1000)")
    asking = asyncio.create_task(filled(vault.program("A")))
    pid = int(await asyncio.to_thread(pids.read_text))

    asking.cancel()
    await asyncio.wait([asking])

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# --- what is shown ---------------------------------------------------------------------------------------------


async def test_an_answer_is_masked_wherever_it_stands(vault: Vault) -> None:
    program = vault.program("COLOUR")
    found = await filled(program)

    assert mask_of(found)(f"COLOUR is {SECRET}!") == "COLOUR is ***!"
    assert SECRET not in repr(found)

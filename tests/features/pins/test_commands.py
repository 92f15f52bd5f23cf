"""`dynamic-mcp pins`: what it shows of definitions that have changed, and that exactly what was shown is approved."""

from __future__ import annotations

import json
import unicodedata

import pytest

from dynamic_mcp.system.os_user import os_user
from tests.features.pins.calculator import EVIL, Calculator, at_terminal
from tests.terminal import strip_escapes

OLD_LINE, NEW_LINE = (f'  "description": "{each}",' for each in ("Adds two numbers and returns the sum.", EVIL))
MUL = {"name": "mul", "description": "Multiplies.", "inputSchema": {"type": "object"}}


@pytest.fixture
def pulled(calc: Calculator) -> Calculator:
    """A server that says something else of a tool than what was approved, as a proxy has seen."""
    calc.approve()
    calc.pull_the_rug()
    calc.connect()
    return calc


def on_terminal(calc: Calculator, *args: str, width: int = 100, typed: bytes = b"", **env: str) -> str:
    return calc.cli.run_on_terminal("pins", *args, width=width, typed=typed, **env).out


# --- status ----------------------------------------------------------------------------------------------------


def test_the_status_says_what_is_held_of_which_server(pulled: Calculator) -> None:
    pulled.configure(free={**pulled.entry, "definitions": "trust"})
    done = pulled.pins()
    assert done.code == 0
    calc, free = done.json["servers"]
    assert (calc["policy"], calc["pinned_version"], calc["version"], calc["pinned"]) == ("hold", "1.4", "1.5", 5)
    assert [(each["kind"], each["name"]) for each in calc["held"]] == [("tool", "add")]
    assert (free["policy"], free["pinned"]) == ("trust", 0)
    assert done.json["lock_file"] == str(pulled.lock_file)
    table = strip_escapes(on_terminal(pulled))
    assert "1 definition changed; held: add" in table
    assert "not pinned" in table


def test_what_no_proxy_has_read_is_not_known_until_the_server_is_asked(calc: Calculator) -> None:
    assert calc.pins("status").json["servers"][0]["known"] is False
    assert "what `calc` offers is not known yet; `--live` asks it" in calc.pins("diff").err
    assert calc.pins("status", "--live").json["servers"][0]["known"] is True


def test_a_server_is_asked_by_itself_if_it_is_named_and_nothing_is_known_to_differ(calc: Calculator) -> None:
    calc.approve()
    calc.connect()
    calc.pull_the_rug()
    assert "no change was seen since the last approval; `--live` asks the servers now" in calc.pins("diff").err
    assert [each["name"] for each in calc.pins("diff", "calc").json[0]["differences"]] == ["add"]
    assert calc.pins("approve", "calc", "--yes").code == 0
    done = calc.pins("approve", "calc", "--yes")
    assert (done.code, done.json["approved"]) == (0, [])
    assert "nothing to approve: `calc` was asked now, and nothing has changed since the last approval" in done.err


# --- diff ------------------------------------------------------------------------------------------------------


def test_a_difference_is_shown_line_by_line_with_and_without_colour(pulled: Calculator) -> None:
    coloured = on_terminal(pulled, "diff", "calc").split("\n")
    old, new = OLD_LINE, NEW_LINE
    assert [each for each in coloured if "\x1b[31m" in each and strip_escapes(each) == f"      - {old}"]
    assert [each for each in coloured if "\x1b[32m" in each and strip_escapes(each) == f"      + {new}"]
    plain = on_terminal(pulled, "diff", "calc", NO_COLOR="1")
    lines = [line.rstrip() for line in strip_escapes(plain).split("\n")]
    assert lines[0] == "calc 1.4 -> 1.5: 1 definition changed; held: add"
    assert lines[1] == "  ✗ tool add: changed, held: its definition has changed"
    assert lines[2:6] == ["      @ -1,5 +1,5", "        {", f"      - {old}", f"      + {new}"]


def test_lines_are_wrapped_and_each_has_its_sign(calc: Calculator) -> None:
    calc.approve()
    calc.update(lambda offer: offer["tools"][1].update(description="Very " * 60))
    lines = strip_escapes(on_terminal(calc, "diff", "calc", "sub", "--live", width=40)).split("\n")
    added = [line for line in lines if "Very" in line]
    assert len(added) > 5
    assert all(line.startswith("      + ") and len(line) <= 40 for line in added)


def test_nothing_that_a_server_says_acts_on_the_terminal_or_passes_for_something_else(calc: Calculator) -> None:
    calc.approve()
    hostile = "ok\x1b[2J\u202e\u3164\u200b\r\n  - returns the sum.\n  ✗ tool sub: gone"
    tool = {"name": f"mul{hostile}", "description": hostile, "inputSchema": {hostile: hostile}}
    calc.update(lambda offer: offer["tools"].append(tool), version=hostile)
    for args in (("status", "--live"), ("diff", "--live"), ("approve", "calc", "--live", "--yes")):
        shown = on_terminal(calc, *args, TERM="dumb")  # on which we write no escapes of our own
        assert not [each for each in shown if unicodedata.category(each) in ("Cc", "Cf") and each != "\n"], args
        assert "\u3164" not in shown
        assert "  - returns the sum." not in [line.rstrip() for line in shown.split("\n")]
        assert "  ✗ tool sub: gone" not in [line.rstrip() for line in shown.split("\n")]
        assert "ok\\x1b[2J\\u2" in shown


def test_only_the_named_definitions_are_compared(pulled: Calculator) -> None:
    pulled.update(lambda offer: offer.update(instructions="Subtract with sub."), version="1.6")
    every, chosen = (pulled.pins("diff", "calc", *names, "--live").json for names in ((), ("instructions",)))
    assert [each["kind"] for each in every[0]["differences"]] == ["tool", "instructions"]
    assert [each["kind"] for each in chosen[0]["differences"]] == ["instructions"]


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (("diff", "clac"), "no group is named `clac`\nhint: did you mean `calc`?"),
        (("verify", "clac"), "no group is named `clac`\nhint: did you mean `calc`?"),
        (("diff", "calc", "ad"), "named `ad`\nhint: did you mean `add`?"),
        (("approve", "calc", "ad", "--yes"), "named `ad`\nhint: did you mean `add`?"),
        (("approve", "--yes"), "give either a SERVER or `--all`"),
        (("approve", "calc", "--all", "--yes"), "give either a SERVER or `--all`"),
        (("approve", "calc"), "`pins approve` needs a terminal, so that a person decides"),
        (("reset", "calc"), "`pins reset` needs a terminal, so that a person decides"),
        (("reset", "clac", "--yes"), "no server with pins is named `clac`\nhint: did you mean `calc`?"),
    ],
)
def test_what_cannot_be_done_is_exit_code_2(pulled: Calculator, args: tuple[str, ...], complaint: str) -> None:
    before = pulled.lock_file.read_bytes()
    done = pulled.pins(*args)
    assert (done.code, done.out) == (2, "")
    assert complaint in done.err
    assert pulled.lock_file.read_bytes() == before


# --- approve ---------------------------------------------------------------------------------------------------


def test_an_update_is_one_approval_with_its_version(pulled: Calculator) -> None:
    pulled.update(lambda offer: offer.update(instructions="Subtract with sub."))
    done = pulled.pins("approve", "calc", "--live", "--yes")
    assert done.code == 0
    (approved,) = done.json["approved"]
    assert (approved["version"], [each["name"] for each in approved["definitions"]]) == ("1.5", ["add", ""])
    assert "approved: 2 definitions of calc 1.4 -> 1.5" in done.err
    server = pulled.locked()["calc"]
    assert (server["version"], server["tools"]["add"]["definition"]["description"]) == ("1.5", EVIL)
    assert pulled.pins("verify", "--frozen").code == 0


def test_only_what_is_named_is_approved(pulled: Calculator) -> None:
    pulled.update(lambda offer: offer.update(instructions="Subtract with sub."))
    assert pulled.pins("approve", "calc", "instructions", "--live", "--yes").code == 0
    server = pulled.locked()["calc"]
    assert server["instructions"]["definition"] == "Subtract with sub."
    assert server["tools"]["add"]["definition"]["description"] != EVIL
    assert server["version"] == "1.4"
    assert pulled.pins("verify").code == 1


def test_a_person_sees_the_difference_and_decides(pulled: Calculator) -> None:
    before = pulled.lock_file.read_bytes()
    with at_terminal(pulled.cli, "pins", "approve", "calc") as terminal:
        terminal.shows("Approve 1 definition of calc 1.4 -> 1.5? [y/N]")
        shown = terminal.text
        assert f"- {OLD_LINE}" in shown
        assert f"+ {NEW_LINE}" in shown
        terminal.types(b"\n")
        assert terminal.ends() == 1
    assert "nothing was approved" in terminal.text
    assert pulled.lock_file.read_bytes() == before
    with at_terminal(pulled.cli, "pins", "approve", "calc") as terminal:
        terminal.shows("[y/N]")
        terminal.types(b"y\n")
        assert terminal.ends() == 0
    assert pulled.locked()["calc"]["tools"]["add"]["definition"]["description"] == EVIL


def test_what_has_changed_since_it_was_shown_is_not_approved(pulled: Calculator) -> None:
    before = pulled.lock_file.read_bytes()
    with at_terminal(pulled.cli, "pins", "approve", "calc") as terminal:
        terminal.shows("[y/N]")
        pulled.update(lambda offer: offer["tools"][0].update(description=f"{EVIL} And all your files."))
        pulled.connect()
        terminal.types(b"y\n")
        assert terminal.ends() == 1
    assert "tool add of `calc` has changed since it was shown; nothing was approved" in terminal.text
    assert pulled.lock_file.read_bytes() == before


def test_of_an_update_that_goes_on_what_is_still_as_shown_is_approved_and_the_rest_is_named(
    pulled: Calculator,
) -> None:
    pulled.update(lambda offer: offer.update(instructions="Subtract with sub."))
    pulled.connect()
    with at_terminal(pulled.cli, "pins", "approve", "calc") as terminal:
        terminal.shows("Approve 2 definitions of calc 1.4 -> 1.5? [y/N]")
        pulled.update(lambda offer: offer["tools"][0].update(description=f"{EVIL} And all your files."))
        terminal.types(b"y\n")
        assert terminal.ends() == 1
    assert "approved: 1 definition of calc 1.4 -> 1.5" in terminal.text
    assert "not approved: tool add of `calc` has changed since it was shown" in terminal.text
    assert "`dynamic-mcp pins diff calc` shows what it is now" in terminal.text
    server = pulled.locked()["calc"]
    assert server["instructions"]["definition"] == "Subtract with sub."
    assert "mails" not in server["tools"]["add"]["definition"]["description"]
    assert server["version"] == "1.4"


def test_a_program_learns_what_was_not_approved(pulled: Calculator) -> None:
    pulled.update(lambda offer: offer["tools"][0].update(description=f"{EVIL} And all your files."))  # not seen yet
    done = pulled.pins("approve", "calc", "--yes")
    assert done.code == 1
    assert done.json["approved"] == []
    assert done.json["not_approved"] == [
        {"server": "calc", "kind": "tool", "name": "add", "reason": "has changed since it was shown"}
    ]


def test_what_was_shown_is_approved_if_the_server_cannot_be_asked_again(pulled: Calculator) -> None:
    (pulled.cli.folder / "offer.json").write_text("broken")
    done = pulled.pins("approve", "calc", "--yes")
    assert done.code == 0
    assert "whether `calc` still says what was shown is not known" in done.err
    assert "approved: 1 definition of calc" in done.err


def test_what_somebody_else_has_approved_meanwhile_is_not_replaced(pulled: Calculator) -> None:
    with at_terminal(pulled.cli, "pins", "approve", "calc", "--live") as terminal:
        terminal.shows("[y/N]")
        pulled.update(lambda offer: offer["tools"][0].update(description="Adds two numbers, nicely."))
        pulled.approve()
        approved = pulled.lock_file.read_bytes()
        terminal.types(b"y\n")
        assert terminal.ends() == 1
    assert "has changed since it was shown; nothing was approved" in terminal.text
    assert pulled.lock_file.read_bytes() == approved


def test_new_definitions_are_shown_whole_if_the_person_wants_it(calc: Calculator) -> None:
    calc.approve()
    calc.update(lambda offer: offer["tools"].append({**MUL, "inputSchema": {"required": ["factor"]}}))
    with at_terminal(calc.cli, "pins", "approve", "calc", "--live") as terminal:
        terminal.shows("Show 1 new definition whole? [Y/n]")
        shown = terminal.text
        assert "+ tool mul: new: Multiplies." in shown
        assert "factor" not in shown
        terminal.types(b"\n")
        terminal.shows("Approve 1 definition of calc 1.4 -> 1.5? [y/N]")
        shown = terminal.text
        assert "factor" in shown
        terminal.types(b"y\n")
        assert terminal.ends() == 0
    with at_terminal(calc.cli, "pins", "approve", "calc", "--live") as terminal:
        assert terminal.ends() == 0  # there is nothing left to ask about


def test_with_json_a_person_is_still_asked_and_stdout_is_json_alone(pulled: Calculator) -> None:
    out = pulled.cli.folder / "out"
    with (
        out.open("wb") as file,
        at_terminal(pulled.cli, "pins", "approve", "calc", stdout=file.fileno()) as terminal,
    ):
        terminal.shows("[y/N]")
        assert f"+ {NEW_LINE}" in terminal.text
        terminal.types(b"y\n")
        assert terminal.ends() == 0
    (approved,) = json.loads(out.read_text())["approved"]
    assert approved["definitions"][0]["diff"][3] == f"+{NEW_LINE}"


def test_what_is_trusted_cannot_be_approved(calc: Calculator) -> None:
    calc.configure(calc={**calc.entry, "definitions": "trust"})
    done = calc.pins("approve", "calc", "--live", "--yes")
    assert done.code == 2
    assert "`calc` is not pinned" in done.err
    assert not calc.lock_file.exists()


def test_approvals_are_recorded_with_their_fingerprints(pulled: Calculator) -> None:
    assert pulled.pins("approve", "calc", "add", "--yes").code == 0
    line = [each for each in pulled.audited() if each["event"] == "definitions.approved"][-1]
    pinned = pulled.locked()["calc"]["tools"]["add"]
    assert (line["group"], line["subject"]) == ("calc", os_user())
    assert line["detail"] == {
        "version": "1.5",
        "approved": [{"kind": "tool", "name": "add", "hash": pinned["hash"]}],
    }
    assert pinned["approved_by"] == os_user()


def test_what_runs_under_another_command_is_pinned_anew(calc: Calculator) -> None:
    calc.approve()
    before = calc.locked()["calc"]
    (calc.cli.folder / "other.json").write_text(json.dumps({**calc.offer, "tools": [MUL]}))
    calc.configure(calc={**calc.entry, "args": [calc.entry["args"][0], "other.json"]})
    assert "it runs something else than what was pinned" in strip_escapes(on_terminal(calc, "diff", "--live"))
    calc.approve()
    after = calc.locked()["calc"]
    assert (list(before["tools"]), list(after["tools"])) == (["add", "sub"], ["mul"])
    assert before["source"] != after["source"]


def test_a_server_that_fails_does_not_keep_the_others_from_being_approved(calc: Calculator) -> None:
    calc.configure(broken={"command": "no-such-command"})
    done = calc.pins("approve", "--all", "--live", "--yes")
    assert (done.code, list(calc.locked())) == (5, ["calc"])
    assert "no-such-command" in done.err


def test_a_definition_that_is_too_large_to_be_kept_is_shown_as_new(calc: Calculator) -> None:
    calc.update(lambda offer: offer["tools"][1].update(description="x" * 300_000))
    calc.approve()
    calc.update(lambda offer: offer["tools"][1].update(description="Subtracts."))
    assert calc.pins("diff", "--live").json[0]["differences"][0]["before"]["definition"] is None
    shown = strip_escapes(on_terminal(calc, "diff", "--live"))
    assert "@ what is pinned was too large to be kept: all is shown as new" in shown
    assert '+   "description": "Subtracts.",' in shown


# --- reset -----------------------------------------------------------------------------------------------------


def test_a_reset_forgets_the_pins_of_one_server(pulled: Calculator) -> None:
    pulled.configure(other=pulled.entry)
    assert pulled.pins("approve", "other", "--live", "--yes").code == 0
    done = pulled.pins("reset", "calc", "--yes")
    assert (done.code, list(pulled.locked())) == (0, ["other"])
    last = pulled.audited()[-1]
    assert (last["event"], last["group"], last["detail"]) == ("definitions.reset", "calc", {"pins": 5})


def test_a_reset_is_asked_about(pulled: Calculator) -> None:
    with at_terminal(pulled.cli, "pins", "reset", "calc") as terminal:
        terminal.shows("Forget 5 pins of calc? What it offers next counts as approved. [y/N]")
        terminal.types(b"n\n")
        assert terminal.ends() == 1
    assert list(pulled.locked()) == ["calc"]


# --- words for a shell -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("pins ", ["approve", "diff", "reset", "status", "verify"]),
        ("pins diff c", ["calc"]),
        ("pins diff calc ", ["add", "sub", "greet", "db://{table}", "instructions"]),
        ("pins approve calc add s", ["sub"]),
        ("pins approve calc add ", ["sub", "greet", "db://{table}", "instructions"]),
        ("pins verify c", ["calc"]),
        ("pins reset c", ["calc"]),
    ],
)
def test_names_are_completed_from_what_proxies_have_seen(calc: Calculator, line: str, offered: list[str]) -> None:
    assert calc.cli.run("tools").code == 0
    words = f"dynamic-mcp {line}"
    asked = {"_DYNAMIC_MCP_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = calc.cli.run(**asked)
    assert [each.partition(",")[2] for each in done.out.splitlines()] == offered

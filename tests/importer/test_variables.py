"""How each syntax becomes ours: what comes out means, to our own substitution, what went in meant to the tool."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.config.substitute import expand
from dynamic_mcp.importer.adapter import Syntax
from dynamic_mcp.importer.convert import variables
from dynamic_mcp.importer.convert.variables import PromptedInput, Scene
from dynamic_mcp.importer.model import Machine, ToolScope
from dynamic_mcp.importer.tools.syntaxes import ANY, BRACES, ENV, GEMINI

WORK = Path("/home/me/work")
ASKED = {
    "key": PromptedInput("key", is_secret=True, default="never shown"),
    "size": PromptedInput("size", default="10"),
    "myKey": PromptedInput("myKey"),
}
MARKS = st.text(alphabet=st.sampled_from("${}:-?aA_%!()\\ \"'"), max_size=30)


def scene(platform: str = "linux", scope: ToolScope = ToolScope.PROJECT) -> Scene:
    """Return a scene with some inputs, and a server that sets OWN itself."""
    assert platform in ("linux", "win32")
    machine = Machine(Path("/home/me"), WORK, {}, "win32" if platform == "win32" else "linux")
    return Scene(machine, scope, "tool", "my-server", inputs=ASKED, server_variables=frozenset({"OWN"}))


@pytest.mark.parametrize(
    ("syntax", "text", "ours"),
    [
        (BRACES, "${A}-${B:-c d}", "${A}-${B:-c d}"),
        (BRACES, "${A:-${B}}", "${A:-${B}}"),
        (BRACES, "${A-b} ${1} ${A.B} $A", "$${A-b} $${1} $${A.B} $A"),
        (BRACES, "${OWN}", "${OWN}"),
        (ENV, "${env:A} ${env:A:-b} ${env:A:b}", "${A} ${A:-b} ${A:-b}"),
        (ENV, "${A} ${OWN} {env:A}", "${A} $${OWN} {env:A}"),
        (ENV, "${env:ProgramFiles(x86)}", "${PROGRAM_FILES_X86}"),
        ((Syntax.CURLY,), "{env:A} ${A} {env:}", "${A} $${A} {env:}"),
        ((Syntax.ACTIONS,), "${{ secrets.A }} ${{inputs.o/p/B}} ${{ x.C }}", "${A} ${B} $${{ x.C }}"),
        ((Syntax.POWERSHELL,), "$env:A/$A", "${A}/$A"),
        (GEMINI, "$A/$B.c $5 $ %A% a$", "${A}/${B}.c $5 $ %A% a$"),
        ((Syntax.DOLLAR, *BRACES), "$$A", "${DOLLAR:-$}${A:-$A}"),
        ((Syntax.DOLLAR, *BRACES), "$A pa$word", "${A} pa${word:-$word}"),
        ((Syntax.DASH, *BRACES), "${A-b c} ${A-} ${A}", "${A:-b c} ${A:-} ${A}"),
        ((Syntax.INPUT,), "${input:myKey}/${input:size}/${input:key}", "${MY_KEY}/${SIZE:-10}/${KEY}"),
        ((Syntax.EDITOR,), "${workspaceFolder}/${workspaceFolderBasename}${/}x", f"{WORK}/work/x"),
        ((Syntax.EDITOR,), "${workspaceFolder:other}", str(WORK)),
        ((Syntax.FILE,), "${file:/run/x}", "${TOOL_MY_SERVER_X_KEY}"),
        ((Syntax.SHELL,), "a $(b $(c) d) e $(f", "a ${TOOL_MY_SERVER_X_KEY} e $(f"),
        ((Syntax.SHELL,), "$(echo $A)", "${A}"),
        ((Syntax.BANG,), "!pass", "${TOOL_MY_SERVER_X_KEY}"),
        ((Syntax.BANG,), "no!", "no!"),
        ((), "${A} $${A} $A %A% !x $(y)", "$${A} $$${A} $A %A% !x $(y)"),
    ],
)
def test_each_syntax_becomes_ours_and_the_rest_stays_literal(
    syntax: tuple[Syntax, ...], text: str, ours: str
) -> None:
    assert variables.convert_text(text, syntax, scene(), field="headers.X-Key").text == ours


def test_what_is_not_set_is_nothing_where_the_tool_makes_nothing_of_it() -> None:
    empties = replace(scene(), is_unset_empty=True)
    for syntax, text in (((Syntax.CURLY,), "a{env:V}b"), (BRACES, "a${V}b"), (GEMINI, "a$V-b"), (ENV, "${env:V}")):
        assert expand(variables.convert_text(text, syntax, empties, field="env.X").text, {}).undefined == ()
    assert variables.convert_text("x{env:V}", (Syntax.CURLY,), empties, field="env.X").text == "x${V:-}"
    assert variables.convert_text("${V:-d} ${OWN}", BRACES, empties, field="args").text == "${V:-d} ${OWN:-}"
    assert variables.convert_text("${input:key}", (Syntax.INPUT,), empties, field="args").text == "${KEY}"


@given(st.lists(st.sampled_from(["$", "$$", "${", "}", "a", "x", "$a", "${a}", "$$x", "-"]), max_size=8))
def test_a_dollar_sign_before_what_is_not_set_reaches_the_server_as_it_was(parts: list[str]) -> None:
    text = "".join(parts)
    ours = variables.convert_text(text, (Syntax.DOLLAR, Syntax.BRACES), scene(), field="args").text
    assert expand(ours, {}).text == text


def test_percent_signs_are_variables_on_windows_only() -> None:
    assert variables.convert_text("%A%/x", GEMINI, scene("win32"), field="command").text == "${A}/x"
    assert variables.convert_text("%A%/x", GEMINI, scene(), field="command").text == "%A%/x"


def test_home_and_separators_are_those_of_the_system() -> None:
    editor = (Syntax.EDITOR,)
    assert variables.convert_text("${userHome}${/}x", editor, scene("win32"), field="cwd").text == "${USERPROFILE}\\x"
    assert variables.convert_text("${userHome}${/}x", editor, scene(), field="cwd").text == "${HOME}/x"


def test_the_whole_value_of_a_variable_takes_that_variables_name() -> None:
    text = variables.convert_text("${input:key}", ANY, scene(), field="env.GITHUB_TOKEN", env_name="GITHUB_TOKEN")
    assert (text.text, text.exports) == ("${GITHUB_TOKEN}", ("GITHUB_TOKEN",))
    part = variables.convert_text(
        "Bearer ${input:key}", ANY, scene(), field="env.GITHUB_TOKEN", env_name="GITHUB_TOKEN"
    )
    assert (part.text, part.exports) == ("Bearer ${KEY}", ("KEY",))


def test_what_was_asked_for_never_becomes_a_variable_that_a_system_sets() -> None:
    assert variables.to_variable_name("path") == "INPUT_PATH"
    assert variables.to_variable_name("userName") == "USER_NAME"
    assert variables.to_variable_name("5ire", "x") == "_5IRE_X"
    assert variables.to_variable_name("…") == "VALUE"


def test_an_open_folder_is_remarked_on_only_where_it_was_not_the_projects_own_setting() -> None:
    text = "${workspaceFolder}"
    assert variables.convert_text(text, (Syntax.EDITOR,), scene(), field="cwd").remarks == ()
    assert variables.convert_text(text, (Syntax.EDITOR,), scene(scope=ToolScope.USER), field="cwd").remarks


@given(MARKS)
def test_literal_text_reaches_the_server_as_it_was(text: str) -> None:
    assert expand(variables.convert_text(text, (), scene(), field="args").text, {"A": "x", "a": "y"}).text == text
    assert expand(variables.escape(text), {"A": "x"}).text == text


@given(st.lists(st.one_of(MARKS.filter(lambda mark: "{env:" not in mark), st.just("{env:A}"))))
def test_references_between_literal_texts_are_filled_in_and_nothing_else_is(parts: list[str]) -> None:
    text = "".join(parts)
    converted = variables.convert_text(text, (Syntax.CURLY,), scene(), field="args").text
    assert expand(converted, {"A": "<a>"}).text == text.replace("{env:A}", "<a>")

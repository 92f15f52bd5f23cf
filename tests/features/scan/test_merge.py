from __future__ import annotations

from dynamic_mcp.features.scan.facts import CommandFact, FlagFact, ValueFact, WordFact
from dynamic_mcp.features.scan.merge import merge
from dynamic_mcp.features.scan.pack_builder import build_pack

LISTED = CommandFact(
    source="list", flags=(FlagFact(names=("--cups",), description="How many"), FlagFact(names=("--cold",)))
)
HELP = CommandFact(
    source="help",
    description="Brews.",
    words=(WordFact(name="source", required=True),),
    flags=(
        FlagFact(names=("-c", "--cups"), value=ValueFact(type="integer"), description="Cups"),
        FlagFact(names=("--bean",), value=ValueFact(type="enum", values=("arabica", "robusta"))),
    ),
)


def test_each_fact_is_from_the_best_source_that_has_it() -> None:
    merged = merge([LISTED, HELP])
    cups = merged.flags[0]
    assert cups.flag == FlagFact(names=("--cups", "-c"), value=ValueFact(type="integer"), description="How many")
    assert cups.source == "list; type: help"
    assert [each.flag.names for each in merged.flags] == [("--cups", "-c"), ("--cold",), ("--bean",)]
    assert merged.fact.description == "Brews."


def test_what_a_whole_source_lacks_is_not_there() -> None:
    whole = CommandFact(source="spec", flags=(FlagFact(names=("--cups",), value=ValueFact()),), is_whole=True)
    merged = merge([whole, HELP])
    assert [(each.flag.names, each.flag.value) for each in merged.flags] == [
        (("--cups", "-c"), ValueFact(type="integer"))
    ]


def test_a_flag_that_takes_a_value_is_no_boolean_because_another_source_shows_none() -> None:
    first = CommandFact(source="spec", flags=(FlagFact(names=("--cups",), value=ValueFact()),))
    second = CommandFact(source="help", flags=(FlagFact(names=("--cups",), value=ValueFact(type="boolean")),))
    assert merge([first, second]).flags[0].flag.value == ValueFact(type="string")


def test_what_is_not_known_to_read_has_an_unknown_effect() -> None:
    built = build_pack("brew", [merge([HELP])], description="", source="a scan")
    assert built is not None
    assert [each.effect for each in built.pack.commands] == ["unknown"]


def test_flags_whose_names_differ_in_case_only_become_different_arguments() -> None:
    names = [("-c",), ("-C",), ("--cups",), ("--Cups",), ("--cwd",)]
    fact = CommandFact(
        source="help", flags=tuple(FlagFact(names=each, value=ValueFact(type="boolean")) for each in names)
    )
    built = build_pack("brew", [merge([fact])], description="", source="a scan")
    assert built is not None
    arguments = [flag.argument for flag in built.pack.commands[0].flags]
    assert len(set(arguments)) == 5
    assert "cwd" not in arguments


def test_a_flag_of_which_nothing_says_whether_it_takes_a_value_is_left_out() -> None:
    built = build_pack("brew", [merge([LISTED, HELP])], description="", source="a scan")
    assert built is not None
    assert [flag.name for flag in built.pack.commands[0].flags] == ["--cups", "--bean"]
    assert any("`--cold`" in remark for remark in built.remarks)


def test_what_a_pack_cannot_hold_is_left_out_with_a_remark() -> None:
    words = (WordFact(name="source", required=True, repeatable=True), WordFact(name="dest", required=True))
    built = build_pack("brew", [merge([CommandFact(source="help", words=words)])], description="", source="a scan")
    assert built is not None
    assert [each.name for each in built.pack.commands[0].positionals] == ["source"]
    assert any("dest" in remark or "after `source`" in remark for remark in built.remarks)

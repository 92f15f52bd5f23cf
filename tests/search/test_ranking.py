"""A query finds the right tool by name or by words, in any spelling and script, or finds nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from dynamic_mcp.search import MAX_RESULTS, GroupIndex, ToolMatch, explain, rank, summarize
from dynamic_mcp.search.ranking import Similarities
from dynamic_mcp.search.synonyms import synonyms
from dynamic_mcp.search.words import split_words, stem


def group_index(
    group: str, description: str = "", **tools: Any
) -> GroupIndex:  # Any: a description, or members of a tool
    """Return a group of tools, each given by its description or by its members."""
    made = {
        name: {"name": name, **(about if isinstance(about, dict) else {"description": about})}
        for name, about in tools.items()
    }
    return GroupIndex(group, {name: Raw(json.dumps(tool).encode()) for name, tool in made.items()}, description)


def schema(**properties: Any) -> dict[str, Any]:
    return {"inputSchema": {"type": "object", "properties": properties}}


CODE = group_index(
    "github",
    "Repositories and issues",
    create_issue="Open a new issue in a repository",
    list_issues="List the issues of a repository",
    add_issue_comment="Write a comment on an issue",
    createPullRequest="Propose changes to a repository",
    search_code="Look for text in files of all repositories",
    delete_branch="Remove a branch",
)
DAYS = group_index(
    "calendar",
    "Appointments",
    create_event="Put an appointment into the calendar",
    list_events="Show the appointments of a day",
    find_free_slot="Find a time at which everybody is free",
)
FILES = group_index(
    "files",
    read_file="Read a text from disk",
    write_file="Write a text to disk",
    convert=schema(to={"enum": ["parquet", "csv"], "description": "the target format"}),
    resize={"title": "Shrink pictures", **schema(thumbnail_width={"type": "integer"})},
)
ALL = [CODE, DAYS, FILES]


def rank_names(query: str, indexes: list[GroupIndex] = ALL) -> list[str]:
    return [match.name for match in rank(indexes, query)]


def first_name(query: str, indexes: list[GroupIndex] = ALL) -> str | None:
    return next(iter(rank_names(query, indexes)), None)


# --- names ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for each in ALL for name in each.names])
def test_an_exact_name_comes_first(name: str) -> None:
    best = rank(ALL, name)[0]

    assert (best.name, best.is_named) == (name, True)


@pytest.mark.parametrize(
    "query",
    ["createIssue", "create-issue", "Create Issue", "CREATE_ISSUE", "github__create_issue", "github.create_issue"],
)
def test_an_exact_name_may_be_spelt_as_names_are_and_carry_its_group(query: str) -> None:
    assert rank(ALL, query)[0] == ToolMatch("github", "create_issue", is_named=True)


def test_a_name_within_a_sentence_comes_first() -> None:
    best = rank(ALL, "which repository issue list do I open before I use add_issue_comment in it?")[0]

    assert best == ToolMatch("github", "add_issue_comment", is_named=False)


def test_an_exact_name_comes_before_tools_that_say_it_more_often() -> None:
    loud = {"description": "search search search", **schema(search={"description": "search"})}
    indexes = [group_index("a", search_all=loud, search_more=loud, search="Anything")]

    assert first_name("search", indexes) == "search"


def test_the_same_name_in_two_groups_is_found_in_both_in_their_order() -> None:
    indexes = [group_index("b", ping="x"), group_index("a", ping="y")]

    assert [match.group for match in rank(indexes, "ping")] == ["b", "a"]


@pytest.mark.parametrize("query", ["pull request", "pullrequest", "pull-request", "PullRequest"])
def test_joined_names_fall_into_their_words(query: str) -> None:
    assert first_name(query) == "createPullRequest"


# --- words ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("create issue", "create_issue"),
        ("I want to comment on an issue, please", "add_issue_comment"),
        ("removing branches", "delete_branch"),
        ("when is everybody free?", "find_free_slot"),
        ("parquet", "convert"),
        ("target format", "convert"),
        ("thumbnail", "resize"),
        ("pictures", "resize"),
        ("appointments today", "list_events"),
    ],
)
def test_every_text_of_a_tool_is_searched(query: str, name: str) -> None:
    assert first_name(query) == name


def test_the_name_and_the_description_of_the_group_are_searched() -> None:
    indexes = [
        group_index("slack", "Chat with colleagues", send="Send it"),
        group_index("gmail", "Letters", send="Send it"),
    ]

    assert rank(indexes, "gmail send")[0].group == "gmail"
    assert rank(indexes, "send to colleagues")[0].group == "slack"


@pytest.mark.parametrize(
    ("query", "name"),
    [("erase a branch", "delete_branch"), ("all bugs", "list_issues"), ("lookup in code", "search_code")],
)
def test_a_synonym_finds_what_the_word_would(query: str, name: str) -> None:
    assert first_name(query) == name


def test_a_word_itself_counts_more_than_its_synonym() -> None:
    indexes = [group_index("a", remove_user="x", delete_user="x")]

    assert rank_names("delete user", indexes) == ["delete_user", "remove_user"]


@pytest.mark.parametrize(("query", "name"), [("reposiotry text", "search_code"), ("calender", "create_event")])
def test_a_slip_of_the_pen_finds_it_all_the_same(query: str, name: str) -> None:
    assert name in rank_names(query)


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("天気", "wetter_ja"),
        ("查询天气", "wetter_zh"),
        ("날씨 알려줘", "wetter_ko"),
        ("погоду", "wetter_ru"),
        ("prevision meteorologique", "wetter_fr"),
        ("อากาศ", "wetter_th"),
        ("मौसम", "wetter_hi"),
        ("الطقس", "wetter_ar"),
    ],
)
def test_other_scripts_and_accents_are_found(query: str, name: str) -> None:
    weather = group_index(
        "weather",
        wetter_ja="東京の天気を調べる",
        wetter_zh="查询城市天气预报",
        wetter_ko="도시의 날씨를 봅니다",
        wetter_ru="Показать погоду в городе",
        wetter_fr="Prévision météorologique d'une ville",
        wetter_th="ดูสภาพอากาศของเมือง",
        wetter_hi="शहर का मौसम देखें",
        wetter_ar="عرض الطَّقس في المدينة",
        other="Something else",
    )

    assert name in rank_names(query, [weather])[:2]


def test_full_width_letters_are_letters() -> None:
    assert first_name("\uff43\uff52\uff45\uff41\uff54\uff45 \uff49\uff53\uff53\uff55\uff45") == "create_issue"


# --- nothing, and bounds -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    ["", " ", "\x00\x1b\n", "???", "🎉🎉", "zzzz qqqq", "bake a chocolate cake", "play some jazz in the kitchen"],
)
def test_what_fits_nothing_finds_nothing(query: str) -> None:
    assert rank_names(query) == []


def test_one_synonym_in_a_long_query_is_chance() -> None:
    assert rank_names("book a flight to Paris for my aunt", [CODE]) == []


def test_there_are_at_most_eight_results() -> None:
    many = group_index("many", **{f"tool_{n}": "Turn the wheel" for n in range(50)})

    assert len(rank_names("wheel", [many])) == MAX_RESULTS == 8


def test_tools_that_fit_alike_stay_in_their_order() -> None:
    many = group_index("many", **{f"{letter}x": "Turn the wheel" for letter in "qwertyui"})

    assert rank_names("wheel", [many]) == [f"{letter}x" for letter in "qwertyui"]


def test_a_query_of_stop_words_alone_means_them() -> None:
    assert first_name("help me", [group_index("a", help="What there is", other="x")]) == "help"


@pytest.mark.parametrize("filler", ["word ", "w" * 50 + " ", "\x00", "天", "a\u0301", "🎉"], ids=ascii)
def test_a_very_long_query_is_read_at_both_ends(filler: str) -> None:
    long = filler * (100_000 // len(filler))

    assert "create_issue" in rank_names(f"create an issue {long}")
    assert "create_issue" in rank_names(f"{long} create an issue")


@pytest.mark.parametrize(
    "tool",
    [
        b"{}",
        b"[]",
        b'{"name":5,"title":[],"description":{},"inputSchema":null}',
        b'{"inputSchema":{"properties":{"a":5,"b":null},"enum":[1,null,["x"]],"items":[1],"anyOf":{}}}',
        b'{"description":"\\ud800 create","inputSchema":{"properties":{"\\udfff":{}}}}',
        b'{"inputSchema":' + b'{"properties":{"a":' * 5000 + b"1" + b"}}" * 5000 + b"}",
        b'{"inputSchema":{"$defs":{"n":{"properties":{"n":{"$ref":"#/$defs/n"}}}},"$ref":"#/$defs/n"}}',
        b'{"description":"' + b"lots of text " * 100_000 + b'"}',
    ],
    ids=lambda tool: tool[:40],
)
def test_an_odd_tool_is_found_by_its_name_and_hides_no_other(tool: bytes) -> None:
    indexes = [GroupIndex("odd", {"odd_one": Raw(tool), "plain": Raw(b'{"description":"A plain one"}')})]

    assert first_name("odd one", indexes) == "odd_one"
    assert first_name("plain", indexes) == "plain"


def test_there_may_be_no_tools_at_all() -> None:
    assert rank([], "create issue") == []
    assert rank([group_index("empty"), group_index("none")], "create issue") == []


def test_an_empty_group_shifts_nothing() -> None:
    assert rank([group_index("empty"), CODE, group_index("none"), DAYS], "free slot")[0] == ToolMatch(
        "calendar", "find_free_slot", is_named=False
    )


# --- similarity ----------------------------------------------------------------------------------------


def test_similarity_finds_a_tool_without_a_matching_word() -> None:
    similarity = [[0.1, 0.1, 0.1, 0.1, 0.1, 0.9], [0.1, 0.2, 0.1], [0.1] * 4]

    assert [match.name for match in rank(ALL, "Zweig entfernen", similarity=similarity)] == ["delete_branch"]


def test_words_count_as_well_as_similarity() -> None:
    even = [[0.5] * 6, [0.5] * 3, [0.5] * 4]

    assert rank(ALL, "create issue", similarity=even)[0].name == "create_issue"


def test_a_tool_of_unknown_similarity_is_found_by_its_words() -> None:
    similarity: list[Similarities] = [[None] * 6, [0.1, 0.9, 0.1], [None] * 4]

    assert rank(ALL, "delete branch", similarity=similarity)[0].name == "delete_branch"


def test_a_similarity_that_does_not_stand_out_is_no_match() -> None:
    similarity = [[0.4, 0.5, 0.6, 0.5, 0.4, 0.6], [0.5, 0.4, 0.6], [0.5, 0.5, 0.6, 0.4]]

    assert rank(ALL, "feed the dog", similarity=similarity) == []


# --- whatever comes ------------------------------------------------------------------------------------


@given(st.text(max_size=200))
def test_whatever_is_asked_is_answered_the_same_way_twice(query: str) -> None:
    once, again = rank(ALL, query), rank(ALL, query)

    assert once == again
    assert len(once) <= MAX_RESULTS
    assert len({(match.group, match.name) for match in once}) == len(once)


@given(st.dictionaries(st.text(min_size=1, max_size=20), st.text(max_size=60), max_size=12))
def test_every_tool_is_first_for_its_own_name(tools: dict[str, str]) -> None:
    made = GroupIndex("g", {name: Raw(json.dumps({"description": about}).encode()) for name, about in tools.items()})

    for name in tools:
        if name == name.strip():
            assert rank([made], name)[0].name == name


@given(st.text(max_size=100))
def test_words_are_lower_case_and_bounded(text: str) -> None:
    for word in split_words(text):
        assert word
        assert len(word) <= 256
        assert stem(word)


@given(st.text(max_size=200))
def test_an_explanation_has_the_order_of_the_ranking(query: str) -> None:
    similarity = [[0.1 * number for number in range(len(index))] for index in ALL]

    for values in ([], similarity):
        explained = explain(ALL, query, similarity=values)
        assert [each.match for each in explained] == rank(ALL, query, similarity=values)


def test_an_explanation_says_what_each_word_adds_to_the_score() -> None:
    explained = explain(ALL, "create an issue with a titel")[0]

    assert explained.match.name == "create_issue"
    assert sum(each.score for each in explained.words) == pytest.approx(explained.by_words)
    assert explained.score == explained.by_words
    assert [each.word for each in explained.words if each.likeness == 1] == ["create", "issue"]


def test_an_explanation_tells_synonyms_from_similar_spellings() -> None:
    synonym = explain(ALL, "erase a branch")[0]
    misspelt = explain(ALL, "brannch")[0]

    assert [(each.word, each.is_synonym) for each in synonym.words] == [("erase", True), ("branch", False)]
    assert [(each.word, each.is_synonym, each.likeness < 1) for each in misspelt.words] == [("brannch", False, True)]


def test_synonyms_go_both_ways_and_never_lead_to_the_word_itself() -> None:
    for word in ("delete", "email", "issue"):
        for other in synonyms(stem(word)):
            assert stem(word) in synonyms(other)
            assert other != stem(word)


def test_a_summary_says_the_name_the_description_and_the_parameters() -> None:
    tool = {"description": "Open an issue.", **schema(title={}, body={})}

    assert summarize("createIssue", Raw(json.dumps(tool).encode())) == "create Issue. Open an issue. (title, body)"


def test_of_a_group_with_very_many_words_the_names_of_all_tools_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dynamic_mcp.search.index.MAX_POSTINGS", 10)
    many = group_index("many", make_red="Paints roses", make_blue="Dyes oceans")
    found = [[match.name for match in rank([many], query)] for query in ("roses", "oceans", "blue")]
    assert found == [["make_red"], [], ["make_blue"]]


def test_a_misspelt_word_is_compared_with_a_bounded_number_of_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dynamic_mcp.search.index.MAX_ALIKE", 3)
    alike = group_index("alike", **{f"tool_{number}": f"search{number}" for number in range(50)})
    assert 0 < len(list(alike.similar_words("searcx"))) <= 3 * len("searcx")

"""The text of a config without secrets, and what a masked text stands for."""

from __future__ import annotations

import json

import pytest

from dynamic_mcp.config import jsonc
from dynamic_mcp.config.masked_text import mask_config, unmask_tree

SECRETS = ("hunter2-of-ann", "sk-abcdefghijklmnop12345", "s3cr3t-value-x9", "t0k3n-in-a-comment")
TEXT = """// my servers
{
  "mcpServers": {
    "one": {
      "command": "one",
      "args": ["--api-key", "hunter2-of-ann", "--verbose"], // --token=t0k3n-in-a-comment
      "env": {"API_KEY": "sk-abcdefghijklmnop12345", "LEVEL": "debug", "GH_TOKEN": "${GH_TOKEN}"},
    },
    /* "old": {"env": {"PASSWORD": "hunter2-of-ann"}}, */
    "far": {"url": "https://ann:hunter2-of-ann@far.example/mcp?key=s3cr3t-value-x9", "headers": {
      "Authorization": "Bearer ${FAR_TOKEN}", "X-Api-Key": "s3cr3t-value-x9"}},
  },
  "settings": {
    "http": {"auth": [{"kind": "bearer", "tokens": [{"token": "${A_TOKEN}", "subject": "ann"}]}]},
    "access": {"people": {"token:ann": ["dev"]}, "roles": {"dev": [{"tools": ["create_token"]}]}}
  }
}
"""


def test_secrets_are_masked_where_they_are_and_all_else_keeps_its_place() -> None:
    masked = mask_config(TEXT)
    assert not [each for each in SECRETS if each in masked]
    assert len(masked.splitlines()) == len(TEXT.splitlines())
    assert masked.startswith("// my servers\n")
    for kept in ('"debug"', '"${GH_TOKEN}"', '"Bearer ${FAR_TOKEN}"', '"kind": "bearer"', '"subject": "ann"'):
        assert kept in masked
    assert '"people": {"token:ann": ["dev"]}' in masked
    assert '"API_KEY": "***"' in masked


def test_a_text_that_is_no_json_is_masked_too() -> None:
    masked = mask_config(TEXT.replace('"mcpServers": {', '"mcpServers": {{', 1))
    assert not [each for each in SECRETS[1:] if each in masked]
    assert '"command": "one"' in masked


def test_what_is_masked_stands_for_what_is_there() -> None:
    original = jsonc.loads(TEXT)
    tree, problems = unmask_tree(jsonc.loads(mask_config(TEXT)), original)
    assert (tree, problems) == (original, [])


def test_items_of_a_list_may_move() -> None:
    original = jsonc.loads(TEXT)
    masked, moved = '"--api-key", "***", "--verbose"', '"--verbose", "--api-key", "***"'
    typed = jsonc.loads(mask_config(TEXT).replace(masked, moved))
    tree, problems = unmask_tree(typed, original)
    assert problems == []
    assert '["--verbose", "--api-key", "hunter2-of-ann"]' in json.dumps(tree)


def test_a_mask_at_another_place_stands_for_nothing() -> None:
    typed = jsonc.loads('{"mcpServers": {"two": {"command": "two", "env": {"API_KEY": "***"}}}}')
    _, problems = unmask_tree(typed, jsonc.loads(TEXT))
    assert [each.where for each in problems] == ["mcpServers.two.env.API_KEY"]


def test_a_mask_is_no_way_to_have_a_secret_sent_elsewhere() -> None:
    """The same name elsewhere, or in another field of the same server, gets nothing."""
    typed = jsonc.loads('{"mcpServers": {"one": {"command": "one", "env": {"OTHER_KEY": "***"}}}}')
    _, problems = unmask_tree(typed, jsonc.loads(TEXT))
    assert len(problems) == 1


@pytest.mark.parametrize(
    "text", ["", "[]", "null", '"x"', '{"mcpServers": []}', '{"mcpServers": {"a": 1}}', "{'a': 1}"]
)
def test_any_text_can_be_masked(text: str) -> None:
    assert isinstance(mask_config(text), str)


def test_masking_takes_linear_time() -> None:
    servers = {f"s{n}": {"command": "x", "env": {"API_KEY": "a" * 20, "B": "token   " * 50}} for n in range(1500)}
    masked = mask_config(json.dumps({"mcpServers": servers}))
    assert masked.count("***") == 1500

"""Texts are read in the encodings that Windows programs write, and written back as they were."""

from __future__ import annotations

import pytest

from dynamic_mcp.system import file_reader

TEXT = '{"a": "ä\U0001f600"}\r\n'


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(TEXT.encode(), id="utf-8"),
        pytest.param(TEXT.encode("utf-8-sig"), id="utf-8 with a mark"),
        pytest.param(b"\xff\xfe" + TEXT.encode("utf-16-le"), id="Out-File"),
        pytest.param(b"\xfe\xff" + TEXT.encode("utf-16-be"), id="Out-File -Encoding BigEndianUnicode"),
        pytest.param(TEXT.encode("utf-16-le"), id="utf-16-le without a mark"),
        pytest.param(TEXT.encode("utf-16-be"), id="utf-16-be without a mark"),
    ],
)
def test_a_text_is_read_and_keeps_its_encoding_its_mark_and_its_line_ends(data: bytes) -> None:
    assert file_reader.decode(data) == TEXT
    text = file_reader.decode_with_mark(data)
    assert file_reader.encode_like(text, data) == data
    assert file_reader.decode(file_reader.encode_like(text.replace("a", "b"), data)) == TEXT.replace("a", "b")


@pytest.mark.parametrize("data", [b"", b"x", b"\xef\xbb\xbf", b"\0", b"\0\0"])
def test_a_short_text_is_utf_8(data: bytes) -> None:
    assert file_reader.encoding_of(data) == "utf-8"


def test_a_new_file_is_utf_8_without_a_mark() -> None:
    assert file_reader.encode_like("ä", None) == "ä".encode()


@pytest.mark.parametrize(("data", "name"), [(b"{\xe4}", "UTF-8"), (b"\xff\xfe{", "UTF-16")])
def test_what_is_in_another_encoding_is_refused(data: bytes, name: str) -> None:
    with pytest.raises(UnicodeDecodeError):
        file_reader.decode(data)
    assert file_reader.encoding_name(data) == name

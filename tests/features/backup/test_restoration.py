"""Places that are exchanged together, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.features.backup.inventory import StateLocation
from dynamic_mcp.features.backup.restoration import Staged, exchange
from tests.features.backup.kept import write


class Mounted(Staged):
    """A place that cannot be exchanged, as where something is mounted."""

    @property
    def is_used(self) -> bool:
        return True

    def take_place(self) -> None:
        raise DynamicMcpError("mounted")


class Written(Staged):
    """A place with something in it that is to take the place of what is there."""

    @property
    def is_used(self) -> bool:
        return True


@pytest.mark.parametrize("is_there", [True, False])
def test_where_one_place_cannot_be_exchanged_the_others_stay_as_they_were(tmp_path: Path, *, is_there: bool) -> None:
    folder, file = tmp_path / "folder", tmp_path / "file"
    if is_there:
        write(folder / "x", "old")
        write(file, "old")
    one, other = Written(StateLocation("elsewhere/a", folder)), Written(StateLocation("elsewhere/b", file))
    write(one.path / "x", "new")
    write(other.path, "new")
    with pytest.raises(DynamicMcpError):
        exchange([one, other, Mounted(StateLocation("state", tmp_path / "state"))])
    assert (folder.exists(), file.exists()) == (is_there, is_there)
    if is_there:
        assert ((folder / "x").read_text(), file.read_text()) == ("old", "old")
    assert ((one.path / "x").read_text(), other.path.read_text()) == ("new", "new")

    exchange([one, other])
    assert ((folder / "x").read_text(), file.read_text()) == ("new", "new")

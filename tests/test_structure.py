"""How the files of the package depend on each other."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from pathlib import Path

import grimp

import dynamic_mcp

PACKAGE = Path(dynamic_mcp.__file__).parent


def test_no_files_import_each_other_in_a_circle() -> None:
    """Imports in functions and for types count: a reader follows them, too."""
    graph = grimp.build_graph("dynamic_mcp", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}

    assert len(imports) > 500
    assert [sorted(circle) for circle in find_circles(imports)] == []


def test_the_table_of_features_imports_nothing_of_the_program() -> None:
    """So that everything may read it, at the start too."""
    graph = grimp.build_graph("dynamic_mcp", cache_dir=None)

    assert graph.find_modules_directly_imported_by("dynamic_mcp.features.table") == set()


def test_no_two_public_classes_have_the_same_name() -> None:
    """A name leads a reader to one class. Those that only one file uses begin with `_`."""
    files: dict[str, list[str]] = defaultdict(list)
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files[node.name].append(str(file.relative_to(PACKAGE)))

    assert len(files) > 500
    assert {name: found for name, found in files.items() if len(found) > 1} == {}


def test_a_circle_is_found() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set[str]()}

    assert [sorted(circle) for circle in find_circles(imports)] == [["b", "c"]]


def find_circles(imports: Mapping[str, Set[str]]) -> Iterator[set[str]]:
    """Yield the modules of each circle: those that import one another, perhaps through others."""
    reached = {module: _reach(imports, module) for module in imports}
    seen: set[str] = set()
    for module in imports:
        if module not in seen and module in reached[module]:
            circle = {other for other in reached[module] if module in reached[other]}
            seen |= circle
            yield circle


def _reach(imports: Mapping[str, Set[str]], module: str) -> set[str]:
    found: set[str] = set()
    left = [module]
    while left:
        new = imports[left.pop()] - found
        found |= new
        left += new
    return found

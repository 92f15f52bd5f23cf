"""Everything here runs in programs that serve alone, and in windows of a daemon."""

from __future__ import annotations

from tests.hosting_fixtures import _hosting, pytest_generate_tests

__all__ = ["_hosting", "pytest_generate_tests"]

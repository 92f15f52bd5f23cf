"""The seeds of the runs: the first tier has one, and the long histories of `pytest -m soak` have the others."""

from __future__ import annotations

import pytest

SOAK = (pytest.mark.soak, pytest.mark.timeout(300))
SEEDS = (1, *(pytest.param(seed, marks=SOAK) for seed in range(2, 7)))

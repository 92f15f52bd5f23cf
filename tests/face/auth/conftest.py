"""An issuer of signed tokens on this machine, and who takes them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.face.auth.jwt_parties import Door
from tests.oidc_provider import ALGORITHMS, OidcProvider


@pytest.fixture
async def issuer() -> AsyncIterator[OidcProvider]:
    async with OidcProvider() as issuer:
        yield issuer


@pytest.fixture
async def door(issuer: OidcProvider) -> AsyncIterator[Door]:
    door = Door(issuer, algorithms=ALGORITHMS)
    yield door
    await door.provider.close()

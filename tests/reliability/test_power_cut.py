"""Nothing that the writer acknowledged is lost when the power fails, whatever the disk made of the
rest. And the suite would notice: on a disk that does not sync, it finds losses."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from app.storage.database import Database
from tests.integration.storage.making import NOW
from tests.reliability.counts import NewCampaign
from tests.reliability.outages import CUTS, lives

SEEDS_UNTIL_FOUND = 10


@pytest.fixture
def template(tmp_path: Path) -> Path:
    """A directory with an empty store, opened once."""

    async def make(directory: Path) -> None:
        await (await Database.open(directory, now=lambda: NOW)).close()

    asyncio.run(make(tmp_path / "template"))
    return tmp_path / "template"


def test_what_was_acknowledged_survives_a_power_cut(
    campaign: NewCampaign, template: Path, tmp_path: Path
) -> None:
    """The small count is 500 cuts, ten in the life of a store."""
    stores = campaign(small=500 // CUTS, large=50_000 // CUTS, unit=f"stores of {CUTS} cuts")
    cut_in: Counter[str] = Counter()
    acknowledged = [0]

    def one_store(seed: int) -> None:
        ledger = asyncio.run(lives(template, tmp_path, seed, CUTS))
        acknowledged[0] += ledger.acknowledgements
        cut_in.update(ledger.cut_in)

    stores.run(one_store)
    if not stores.alone:
        assert acknowledged[0] > 10 * CUTS * stores.done
        assert cut_in["mlxq.db-wal"] > stores.done  # in commits
        assert cut_in["mlxq.db"] > stores.done / 2  # when the log went back into the file


@pytest.mark.parametrize("fault", ["honest", "synchronous"])
def test_losses_are_found_where_nothing_is_synced(
    template: Path, tmp_path: Path, fault: str
) -> None:
    """The negative controls: a disk that forgets all the same, a connection that does not sync."""
    found = 0
    for seed in range(SEEDS_UNTIL_FOUND):
        try:
            asyncio.run(lives(template, tmp_path, seed, CUTS, **{fault: False}))
        except AssertionError:
            found += 1
    assert found > SEEDS_UNTIL_FOUND // 2

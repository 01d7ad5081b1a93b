"""The user's own price list: its layouts, what it replaces, and what is refused."""

from __future__ import annotations

import datetime
import os
import re
from pathlib import Path

import duckdb
import pytest
from journals import GPU_MACHINE

from gputui.errors import GputuiError
from gputui.facts.tables import InstanceRow, instance_rows
from gputui.model.journal import Price
from gputui.services.prices import (
    age_words,
    best_offer,
    date_of,
    find_instance,
    gpu_named,
    import_prices,
    is_on_demand,
    is_recent,
    known_instances,
    list_price,
    most_rented,
    offers_of,
    per_gpu,
    price_of,
    price_source,
)
from gputui.services.support.paths import price_list_file

OURS = "provider,instance_type,gpu,gpu_count,usd_per_hour,price_date,spot_usd_per_hour,spot_date\n"


@pytest.fixture(autouse=True)
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def written(tmp_path: Path, text: str, name: str = "list.csv") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_price_list_goes_before_the_shipped_one_and_leaves_other_types_alone(tmp_path: Path) -> None:
    (shipped,) = find_instance("aws/g5.xlarge")
    import_prices([written(tmp_path, f"{OURS}aws,g5.xlarge,A10G,1,0.5,2026-11-20,,\n")], "", "")

    (mine,) = find_instance("aws/g5.xlarge")
    assert (mine.usd_per_hour, mine.price_date) == (0.5, "2026-11-20")
    assert shipped not in known_instances()
    assert len(known_instances()) == len(instance_rows())
    price_list_file().unlink()
    assert known_instances() == instance_rows()


def test_a_skypilot_catalog_names_its_provider_and_day_by_options_and_keeps_the_cheapest_zone(
    tmp_path: Path,
) -> None:
    catalog = written(
        tmp_path,
        "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone\n"
        "m5.large,,,2,8,,0.1,,us-east-1,us-east-1a\n"
        "p5.48xlarge,H100,8,192,2048,x,60,25,us-east-1,us-east-1a\n"
        "p5.48xlarge,H100,8,192,2048,x,58,27,us-east-1,us-east-1b\n"
        "x.tpu,tpu-v5,1,1,1,,5,,us-east-1,\n",
    )
    done = import_prices([catalog], "AWS", "2026-11-21")

    assert done == [
        f"2 prices, kept in {price_list_file()}",
        f"from a SkyPilot catalog list of AWS, dated 2026-11-21: {catalog}",
        "left out: 1 line without a GPU or a price",
        "GPUs that gputui does not know, found by instance type only: tpu-v5",
    ]
    (row,) = find_instance("aws/p5.48xlarge")
    assert (row.gpu, row.usd_per_hour, row.spot_usd_per_hour) == ("H100 SXM 80GB", 58.0, 25.0)


def test_catalogs_of_several_clouds_are_taken_at_once_with_the_cloud_and_the_day_of_each_file(
    tmp_path: Path,
) -> None:
    paths = []
    for cloud, usd, day in (
        ("aws", 58, datetime.date(2026, 11, 3)),
        ("lambda", 29, datetime.date(2026, 9, 9)),
    ):
        (tmp_path / cloud).mkdir()
        header = "InstanceType,AcceleratorName,AcceleratorCount,Price,SpotPrice,Region"
        paths.append(written(tmp_path / cloud, f"{header}\n{cloud}8,H100,8,{usd},,x\n", "vms.csv"))
        at = datetime.datetime.combine(day, datetime.time(12)).timestamp()
        os.utime(paths[-1], (at, at))
    hunted = written(
        tmp_path,
        "instance_name,location,price,gpu_count,gpu_name,gpu_memory,spot\nH100,EU,2.5,1,H100,80,False\n",
        "nebius.csv",
    )

    done = import_prices([*paths, hunted], "", "")

    assert done[0].startswith("3 prices, kept in ")
    assert "of lambda, dated 2026-09-09" in done[2]
    found = {row.provider: (row.usd_per_hour, row.price_date) for row in known_instances()[:3]}
    assert found["aws"] == (58.0, "2026-11-03")
    assert found["lambda"] == (29.0, "2026-09-09")
    assert found["nebius"][0] == 2.5


def test_a_gpuhunt_catalog_as_parquet_gives_on_demand_and_spot_of_one_type(tmp_path: Path) -> None:
    path = tmp_path / "runpod.parquet"
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT * FROM (VALUES"
            " ('runpod', 'A100 80', 'EU', 1.64::DOUBLE, 8, 117.0, 1, 'A100', 80.0, false),"
            " ('runpod', 'A100 80', 'EU', 0.82::DOUBLE, 8, 117.0, 1, 'A100', 80.0, true))"
            " v(provider, instance_name, location, price, cpu, memory, gpu_count, gpu_name, gpu_memory, spot)"
        )
        connection.execute(f"COPY t TO '{path}' (FORMAT parquet)")
    done = import_prices([path], "", "2026-11-21")

    assert done == [
        f"1 price, kept in {price_list_file()}",
        f"from a gpuhunt catalog list of runpod, dated 2026-11-21: {path}",
    ]
    (row,) = find_instance("runpod/A100 80")
    assert (row.usd_per_hour, row.spot_usd_per_hour, row.gpu) == (1.64, 0.82, "A100-SXM4-80GB")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a price list: its columns are none"),
        ("a,b\n1,2\n", "not a price list: its columns are a, b"),
        (f"{OURS}aws,x,A10G,1,cheap,2026-11-20,,\n", "line 2: price: must be a number"),
        (f"{OURS}aws,x,A10G,1,-3,2026-11-20,,\n", "line 2: price: must be a number"),
        (f"{OURS}aws,x,A10G,1,1.5,,,\n", "line 2: has no date"),
        (f"{OURS}aws,x,A10G,1,1.5,yesterday,,\n", "line 2: has no date: yesterday"),
        (f"{OURS},x,A10G,1,1.5,2026-11-20,,\n", "line 2: has no provider"),
        (f"{OURS}aws,x,A10G,0,1.5,2026-11-20,,\n", "has no price of an instance with a GPU"),
    ],
)
def test_a_list_that_cannot_be_read_is_refused_and_the_old_one_stays(
    tmp_path: Path, text: str, said: str
) -> None:
    import_prices([written(tmp_path, f"{OURS}aws,g5.xlarge,A10G,1,0.5,2026-11-20,,\n")], "", "")
    before = price_list_file().read_bytes()

    with pytest.raises(GputuiError, match=said):
        import_prices([written(tmp_path, text, "other.csv")], "", "")
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\x00\x01")
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and no more")
    for name in ("x.csv", "x.parquet", "absent.csv"):
        with pytest.raises(GputuiError):
            import_prices([tmp_path / name], "aws", "2026-11-20")
    assert price_list_file().read_bytes() == before


def test_a_list_that_was_damaged_by_hand_is_refused_by_its_name(tmp_path: Path) -> None:
    import_prices([written(tmp_path, f"{OURS}aws,g5.xlarge,A10G,1,0.5,2026-11-20,,\n")], "", "")
    text = price_list_file().read_text()
    for was, damaged in ((",0.5,", ",-3,"), ("gpu_count", "count")):
        price_list_file().write_text(text.replace(was, damaged))
        with pytest.raises(GputuiError, match=price_list_file().name):
            known_instances()


def test_short_names_of_price_lists_find_the_card_by_name_and_memory() -> None:
    assert gpu_named("H100", None) == "H100 SXM 80GB"
    assert gpu_named("H100", 94.0) == "H100 NVL"
    assert gpu_named("A100-80GB", None) == "A100-SXM4-80GB"
    assert gpu_named("A100", 40.0) == "A100-SXM4-40GB"
    assert gpu_named("RTX4090", None) == "RTX 4090"
    assert [gpu_named(*known) for known in (("RX9999", None), ("L4", 24.0))] == ["RX9999", "L4"]


def test_spot_and_on_demand_are_prices_of_one_row_and_asked_for_apart() -> None:
    on_demand, spot = (price_of(None, f"aws/p5en.48xlarge{end}", GPU_MACHINE) for end in ("", ":spot"))

    assert on_demand is not None
    assert spot is not None
    assert on_demand.usd_per_hour > spot.usd_per_hour
    assert (on_demand.kind, spot.kind) == ("on-demand Linux", "spot")
    with pytest.raises(GputuiError, match="no spot price known"):
        price_of(None, "aws/g5.xlarge:spot", GPU_MACHINE)


def test_no_row_is_named_spot_and_each_spot_price_has_its_day_and_source() -> None:
    for row in instance_rows():
        assert "spot" not in row.instance_type
        assert row.price_kind != "spot"
        if row.spot_usd_per_hour is not None:
            assert row.spot_date
            assert row.spot_source
            assert row.usd_per_hour is None or row.spot_usd_per_hour < row.usd_per_hour
    assert sum(row.spot_usd_per_hour is not None for row in instance_rows()) == 25


def test_an_old_price_is_shown_with_its_age_and_a_recent_one_without() -> None:
    today = datetime.date(2026, 11, 22)
    (row,) = find_instance("aws/p4d.24xlarge")
    price = list_price(row)
    assert isinstance(price, Price)
    assert price_source(price, today).startswith("list price of 2026-07-20, 125 days old: aws p4d.24xlarge")
    assert age_words("2026-08-24", today) == ""
    assert age_words("2026-08-23", today) == "91 days old"
    assert age_words("2026 (catalogue snapshot, undated)", today) == "date unsure"


TODAY = datetime.date(2026, 11, 22)


def priced(gpu: str) -> list[InstanceRow]:
    rows = (row for row in instance_rows() if row.gpu == gpu and row.gpu_count >= 1)
    return [row for row in rows if row.usd_per_hour is not None and row.usd_per_hour > 0]


def recent_on_demand(gpu: str, count: int = 1) -> list[InstanceRow]:
    rows = (row for row in priced(gpu) if row.gpu_count >= count and is_recent(row.price_date, TODAY))
    return [row for row in rows if is_on_demand(row.price_kind)]


def test_the_best_offer_is_the_cheapest_recent_one_on_demand_with_enough_whole_gpus_and_never_free() -> None:
    free = {row.gpu for row in instance_rows() if row.usd_per_hour == 0}
    assert free
    for gpu in {row.gpu for row in instance_rows()}:
        for count in (1, 2, 8):
            found = best_offer(gpu, TODAY, count)
            assert (found is None) == ([row for row in priced(gpu) if row.gpu_count >= count] == [])
            recent = [row.usd_per_hour for row in recent_on_demand(gpu, count)]
            if recent:
                assert found is not None
                assert found.usd_per_hour == min(recent)  # type: ignore[type-var]
        each = best_offer(gpu, TODAY)
        each_usd = [per_gpu(row.usd_per_hour, row) for row in recent_on_demand(gpu)]
        assert not each_usd or (each is not None and per_gpu(each.usd_per_hour, each) == min(each_usd))
    assert best_offer("H100 SXM 80GB", TODAY, 1000) is None
    assert best_offer("RTX 3050", TODAY) is None


def test_a_price_with_a_commitment_is_never_the_best_offer_where_another_is_on_demand(tmp_path: Path) -> None:
    kinds = ("commitment", "reserved, 1 year", "spot", "interruptible", "community cloud", "marketplace")
    lines = "".join(
        f"x,{kind.split()[0].strip(',')},H200 SXM,1,{number / 10},2026-11-20,{kind!r}\n".replace("'", '"')
        for number, kind in enumerate(kinds, 1)
    )
    header = "provider,instance_type,gpu,gpu_count,usd_per_hour,price_date,price_kind\n"
    import_prices(
        [written(tmp_path, f"{header}{lines}x,plain,H200 SXM,1,3.5,2026-11-20,on-demand\n")], "", ""
    )
    best = best_offer("H200 SXM", TODAY)
    assert best is not None
    assert (best.instance_type, best.usd_per_hour) == ("plain", 3.5)
    assert [row.usd_per_hour for row in offers_of(["H200 SXM"], TODAY)][:3] == [0.1, 0.2, 0.3]
    import_prices([written(tmp_path, f"{header}x,y,H900,1,0.5,2026-11-20,commitment\n")], "", "")
    only = best_offer("H900", TODAY)  # there is no other, and its kind says so
    assert only is not None
    assert only.price_kind == "commitment"


def test_an_old_price_never_beats_a_recent_one_and_the_newest_stands_in_where_there_is_none() -> None:
    stale = best_offer("T4", TODAY)
    assert stale is not None
    assert stale.price_date == max(row.price_date for row in priced("T4"))
    assert any(row.usd_per_hour < stale.usd_per_hour for row in priced("T4"))  # type: ignore[operator]
    cheap = min(priced("H100 SXM 80GB"), key=lambda row: per_gpu(row.usd_per_hour, row))
    assert age_words(cheap.price_date, TODAY) == "date unsure"
    assert best_offer("H100 SXM 80GB", TODAY) != cheap
    offers = offers_of(["H100 SXM 80GB"], TODAY)
    ages = [is_recent(date_of(row), TODAY) for row in offers if row in priced("H100 SXM 80GB")]
    assert ages == sorted(ages, reverse=True)
    assert any(ages)
    assert not all(ages)


THE_DAY = datetime.date(2026, 11, 26)
"""On which the built-in lists were last looked at."""


def test_of_the_16_most_offered_gpus_each_has_a_price_on_demand_and_13_a_recent_one() -> None:
    """And a price with terms stands in only where no other is listed."""
    best = {name: best_offer(name, THE_DAY) for name in most_rented()}
    for name, offer in best.items():
        assert offer is not None
        others = [row for row in priced(name) if is_on_demand(row.price_kind)]
        assert is_on_demand(offer.price_kind) == bool(others), name
    sixteen = [offer for name in most_rented()[:16] if (offer := best[name]) is not None]
    for offer in sixteen:
        assert is_on_demand(offer.price_kind)
        assert not NO_PRICE_BY_THE_HOUR.search(f"{offer.price_kind} {offer.notes}"), offer
    assert sum(is_recent(offer.price_date, THE_DAY) for offer in sixteen) == 13


NO_PRICE_BY_THE_HOUR = re.compile(r"commit|reserv|interrupt|preempt|communit|marketplace|flex", re.IGNORECASE)

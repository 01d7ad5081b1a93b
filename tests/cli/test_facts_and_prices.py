"""`gputui gpu`, with its old names `facts` and `prices`: arguments and printed answers."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from command_line import gputui, printed, printed_json
from nvml.standin import standin_environment
from quick_runs import store_quick


@pytest.fixture(autouse=True)
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "80")


def test_a_gpu_has_its_peaks_what_others_measured_and_every_source(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, out, _ = printed(capsys, "gpu", "RTX", "5090")
    assert status == 0
    assert "bf16 210" in out
    assert "217 to 237 TFLOP/s 5 boxes" in out
    assert "More than the peak: cards with power to spare" in out
    found = printed_json(capsys, "facts", "RTX 5090", "--json")
    assert found["peak_flops_per_s"]["bf16"] == pytest.approx(209.5e12, rel=0.01)
    keys = {*found["source"], *(key for one in found["measured"] for key in one["source"])}
    assert all(f"[{key}] " in out for key in keys)


def test_facts_takes_what_a_driver_calls_it(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = printed(capsys, "facts", "NVIDIA H100 80GB HBM3")
    assert (status, out.splitlines()[0].split(":")[0]) == (0, "H100 SXM 80GB")


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        ("h100", ("H100 SXM 80GB", "H100 PCIe", "H100 NVL")),
        ("a100-80", ("A100-SXM4-80GB", "A100 80GB PCIe")),
        ("a100 sxm", ("A100-SXM4-80GB", "A100-SXM4-40GB")),
        ("gh200", ("GH200 96GB HBM3", "GH200 144GB HBM3e")),
    ],
)
def test_a_name_of_several_gpus_is_answered_with_what_distinguishes_them(
    capsys: pytest.CaptureFixture[str], typed: str, names: tuple[str, ...]
) -> None:
    status, out, _ = printed(capsys, "facts", *typed.split())
    assert (status, out.split("GPUs:")[0].rsplit(" ", 2)[0]) == (0, f"'{typed}' matches")
    assert all(any(line.startswith(name) for line in out.splitlines()) for name in names)
    assert all(len(line) <= 80 for line in out.splitlines())
    assert "next: gputui gpu '" in out


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        *(("4090", "RTX 4090"), ("rtx4090", "RTX 4090"), ("h100 sxm", "H100 SXM 80GB"), ("t4", "T4")),
        *(("rtx 6000 ada", "RTX 6000 Ada"), ("l40s", "L40S"), ("mi300x", "Instinct MI300X")),
        ("b200", "B200 SXM6"),
    ],
)
def test_a_name_as_people_type_it_is_that_gpu_with_rates_in_one_unit(
    capsys: pytest.CaptureFixture[str], typed: str, name: str
) -> None:
    status, out, _ = printed(capsys, "facts", *typed.split())
    assert (status, out.split(":")[0]) == (0, name)
    reached = out.partition("measured elsewhere")[2].partition("[")[0]
    assert "FLOP/s" in reached
    assert "PFLOP/s" not in reached
    assert " TB/s" not in reached


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("facts", "H100", "--json"), "'H100' matches 4 GPUs"),
        (("facts", "L4", "H200"), "'L4' is not H200 SXM name one GPU at a time"),
        (("facts", "RTX 5091"), "did you mean RTX 5090, RTX 5090 D"),
        (("facts", "H100x"), "did you mean H100 NVL, H100 PCIe, H100 SXM 80GB"),
        (("prices", "H2000"), "did you mean H200 SXM?"),
        (("prices", "p5en.48xlrge"), "did you mean aws/p5en.48xlarge"),
        (("prices", "--date", "2026-11-22"), "add --import FILE"),
        (("prices", "--import", "/nonexistent.csv"), "No such file"),
    ],
)
def test_what_means_nothing_is_refused_with_what_to_type_instead(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    status, _, err = printed(capsys, *words)
    assert status == 2
    assert said in " ".join(err.split())


def test_prices_fit_a_terminal_and_those_of_one_gpu_begin_with_the_cheapest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words in ((), ("H100",), ("p5en.48xlarge",)):
        status, out, _ = printed(capsys, "prices", *words)
        assert status == 0
        assert all(len(line) <= 80 for line in out.splitlines())
    offers = printed_json(capsys, "prices", "H100", "--json")["offers"]
    paid = [one for one in offers if one["usd_per_hour"]]
    assert [one["is_recent"] for one in paid] == sorted((one["is_recent"] for one in paid), reverse=True)
    recent = [one["usd_per_hour"] / one["gpu_count"] for one in paid if one["is_recent"]]
    assert recent == sorted(recent)
    assert {one["gpu"] for one in offers} > {"H100 SXM 80GB", "H100 PCIe"}


def test_an_imported_list_is_used_until_it_is_forgotten(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    mine = tmp_path / "mine.csv"
    mine.write_text("instance_type,gpu,gpu_count,usd_per_hour\nbox,H100,2,3.00\n", encoding="utf-8")
    status, out, _ = printed(
        capsys, "prices", "--import", str(mine), "--provider", "us", "--date", "2026-11-20"
    )
    assert status == 0
    assert "1 price, kept in " in out
    assert printed_json(capsys, "prices", "box", "--json")["offers"][0]["usd_per_hour"] == 3.0
    status, out, _ = printed(capsys, "prices", "--forget")
    assert out.startswith("removed ")
    status, _, err = printed(capsys, "prices", "box")
    assert status == 2
    assert "no price of 'box' is listed" in err


def test_the_cheapest_of_each_gpu_is_a_price_on_demand_and_other_kinds_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, out, _ = printed(capsys, "prices")
    assert (status, out.splitlines()[0][:24]) == (0, "Cheapest on-demand price")
    assert "paperspace A100-80G" not in out
    assert all(one["is_on_demand"] for one in printed_json(capsys, "prices", "--json")["offers"][:15])
    status, out, _ = printed(capsys, "prices", "A100-SXM4-80GB", "--all")
    (line,) = [line for line in out.splitlines() if "paperspace A100-80G" in line]
    assert "commitment" in line
    offers = printed_json(capsys, "prices", "A100-SXM4-80GB", "--json")["offers"]
    kinds = {(one["instance_type"], one["price_kind"], one["is_on_demand"]) for one in offers}
    assert ("A100-80G", "commitment", False) in kinds
    assert ("A100 SXM (secure)", "on-demand secure cloud", True) in kinds
    assert all(len(line) <= 80 for line in out.splitlines())


def test_the_prices_shown_and_those_named_as_left_out_are_all_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    offers = printed_json(capsys, "prices", "H100", "--json")["offers"]
    out = printed(capsys, "prices", "H100")[1]
    rows = [line for line in out.splitlines() if line.startswith("H100 ")]
    left = {word: int(count) for count, word in re.findall(r"(\d+) (more|older)\b", out.splitlines()[-1])}
    said = re.match(r"(\d+) prices? of the last 90 days", out)

    assert len(rows) + sum(left.values()) == len(offers)
    assert sum(offer["is_recent"] for offer in offers) == (int(said[1]) if said else 0)
    assert not said or len(rows) + left.get("more", 0) == int(said[1])


def test_fit_and_facts_recommend_no_price_with_a_commitment(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = printed(capsys, "fit", "30B", "--infer")
    assert "paperspace" not in out
    found = printed_json(capsys, "fit", "30B", "--infer", "--json")
    offers = [offer for size in found["gpus"] for offer in size["offers"]]
    kinds = {offer["kind"] for offer in offers if offer["name"] == "A100-SXM4-80GB"}
    assert {kind.partition(" ")[0] for kind in kinds} == {"on-demand"}
    status, out, _ = printed(capsys, "facts", "A100-SXM4-80GB")
    lines = {line.split("  ")[0]: line for line in out.splitlines()}
    assert (status, "paperspace" in lines["on demand"]) == (0, False)
    assert "$1.15 a GPU hour (commitment, paperspace, any region, 2026-09-20" in lines["other"]
    offer = printed_json(capsys, "facts", "A100-SXM4-80GB", "--json")["offer"]
    assert (offer["price_kind"].partition(" ")[0], offer["is_on_demand"]) == ("on-demand", True)


def test_a_price_that_is_not_on_demand_says_so_where_there_is_no_other(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "own.csv").write_text(
        "provider,instance_type,gpu,gpu_count,usd_per_hour,price_date,price_kind\n"
        "x,one,RTX 3090 Ti,1,0.25,2026-11-20,commitment\n"
    )
    assert printed(capsys, "prices", "--import", str(tmp_path / "own.csv"))[0] == 0
    _, out, _ = printed(capsys, "fit", "1B", "--infer", "--gpu", "RTX 3090 Ti")
    assert "$0.25/h (x, commitment" in out
    assert "+: not on demand: commitment." in out
    _, out, _ = printed(capsys, "facts", "RTX 3090 Ti")
    assert "on demand  no price known" in out
    assert "other      $0.25 a GPU hour (commitment, x, " in out


def test_everything_about_a_gpu_fits_a_terminal_with_what_was_measured_here(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUTUI_REFERENCES", str(tmp_path))
    store_quick(tmp_path / "a.db", 1, on_gpu=True, scale=1.3)
    status, out, _ = printed(capsys, "gpu", "H200", str(tmp_path / "a.db"))

    assert (status, out.split(":")[0]) == (0, "H200 SXM"), "the one of both that the file has"
    (line,) = [line for line in out.splitlines() if line.startswith("matmul fp32")]
    assert "●" in line
    assert all(len(line) <= 80 for line in out.splitlines())
    found = printed_json(capsys, "gpu", "H200", "SXM", str(tmp_path / "a.db"), "--json")
    assert [one["word"] for one in found["here"]]
    assert {one["gpu"] for one in found["offers"]} == {"H200 SXM"}
    (spread,) = [one for one in found["distributions"] if one["measure"] == "copy"]
    assert (spread["boxes"], spread["spread_pct"], spread["rates"]) == (253, 38.0, [])


def test_results_are_added_to_the_reference_of_their_model(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUTUI_REFERENCES", str(tmp_path))
    store_quick(tmp_path / "a.db", 1)

    status, out, _ = printed(capsys, "gpu", "--add", str(tmp_path / "a.db"))

    assert (status, "1 box added" in out) == (0, True)
    assert "xeon-8481c-1-core" in printed(capsys, "reference", "list")[1]


FOUR = "driver gpus 4\n* name NVIDIA H100 80GB HBM3\n* memory_used_mib 0\n* sm_busy_pct 0\n"


def test_the_gpus_that_are_free_and_healthy_now_are_printed_for_cuda_visible_devices() -> None:
    env = standin_environment(f"{FOUR}1 process {os.getpid()} C 512\n2 error * 15\n")

    done = gputui("gpu", "--free", env=env)

    assert (done.returncode, done.stdout) == (0, "0,3\n")
    plain = json.loads(gputui("gpu", "--free", "--json", env=env).stdout)
    assert plain["free"] == [0, 3]
    assert [one["gpu"] for one in plain["others"]] == [1, 2]


def test_where_no_gpu_is_free_the_status_is_1_and_each_has_its_reason() -> None:
    env = standin_environment(f"driver gpus 1\n0 process {os.getpid()} C 512\n")

    done = gputui("gpu", "--free", env=env)

    assert (done.returncode, done.stdout) == (1, "")
    assert "GPU 0: a process uses it" in done.stderr


def test_without_a_name_it_is_about_the_gpus_of_this_box() -> None:
    done = gputui("gpu", env=standin_environment("driver gpus 2\n* name NVIDIA L4\n"))

    assert done.stdout.startswith("L4: NVIDIA, Ada")
    assert done.stdout.count("peak  ") == 1, "of two alike one page"

"""`gputui gpu`, with its earlier names `facts`, `prices` and `reference`: arguments and printed answers."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from command_line import gputui, gputui_here, printed, printed_json
from nvml.standin import standin_environment
from quick_runs import store_quick

from gputui.services.support.paths import references_directory


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
        *(("rtx4090", "RTX 4090"), ("h100 sxm", "H100 SXM 80GB"), ("t4", "T4")),
        *(("rtx 6000 ada", "RTX 6000 Ada"), ("mi300x", "Instinct MI300X")),
    ],
)
def test_a_name_as_people_type_it_is_that_gpu_with_rates_in_one_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / typed.split()[0]).mkdir()  # of its results, say
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
        (("facts", "L4", "H200"), "'L4 H200' is more than H200 SXM name one GPU at a time"),
        (("facts", "RTX 5091"), "did you mean RTX 5090, RTX 5090 D"),
        (("facts", "H100x"), "did you mean H100 NVL, H100 PCIe, "),
        (("prices", "H2000"), "did you mean H200 NVL, H200 SXM"),
        (("prices", "p5en.48xlrge"), "did you mean aws/p5en.48xlarge"),
        (("prices", "--date", "2026-11-22"), "add --prices FILE"),
        (("gpu", "H200", "--name", "x"), "add --add F@RUN"),
        (("reference", "add"), "no results are named"),
        (("prices", "--import", "/nonexistent.csv"), "No such file"),
    ],
)
def test_what_means_nothing_is_refused_with_what_to_type_instead(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    status, _, err = printed(capsys, *words)
    assert status == 2
    assert said in " ".join(err.split())


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
    status, out, _ = printed(capsys, "prices", "--import", str(tmp_path / "own.csv"))
    assert (status, "1 price, kept in " in out) == (0, True)
    (offer,) = [
        one
        for one in printed_json(capsys, "prices", "RTX 3090 Ti", "--json")["offers"]
        if one["provider"] == "x"
    ]
    assert offer["usd_per_hour"] == 0.25
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
    (line,) = [line.rstrip() for line in out.splitlines() if line.startswith("matmul fp32")]
    assert line.endswith(" %")
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
    file, copied = str(tmp_path / "a.db"), str(tmp_path / "shared.db")
    store_quick(tmp_path / "a.db", 1, label="my label")
    assert printed(capsys, "share", file, "-o", copied)[0] == 0

    status, out, _ = printed(capsys, "reference", "add", file, copied, "--note", "rack 3")

    out = " ".join(out.split())
    assert status == 0
    assert out.startswith("xeon-8481c-1-core: 1 box with Xeon 8481C, 1 core, 12 cases of quick; 1 box added")
    assert ": its box is counted already" in out, "a copy under other ids is no other box"
    assert "may be sent as it is" in out
    (path,) = references_directory().glob("*.json")
    kept = path.read_text(encoding="utf-8")
    assert ("rack 3" in kept, "my label" in kept) == (True, False)
    assert "xeon-8481c-1-core" in gputui_here("gpu").stdout
    for words, said in (((), "its box is counted already"), (("--name", "../x"), "not a name")):
        status, _, err = printed(capsys, "gpu", "--add", file, *words)
        assert (status, said in err) == (2, True)


FOUR = "driver gpus 4\n* name NVIDIA H100 80GB HBM3\n* memory_used_mib 0\n* sm_busy_pct 0\n"


def test_the_gpus_that_are_free_and_healthy_now_are_printed_for_cuda_visible_devices_or_why_none_is() -> None:
    done = gputui(
        "gpu", "--free", env=standin_environment(f"{FOUR}1 process {os.getpid()} C 512\n2 error * 15\n")
    )

    assert (done.returncode, done.stdout) == (0, "0,3\n")

    env = standin_environment(f"driver gpus 1\n0 process {os.getpid()} C 512\n")
    done = gputui("gpu", "--free", "--json", env=env)
    plain = json.loads(done.stdout)
    assert (done.returncode, plain["free"], plain["others"][0]["gpu"]) == (1, [], 0)
    assert "GPU 0: a process uses it" in done.stderr


def test_without_a_name_it_is_about_the_gpus_of_this_box() -> None:
    done = gputui("gpu", env=standin_environment("driver gpus 2\n* name NVIDIA L4\n"))

    assert done.stdout.startswith("L4: NVIDIA, Ada")
    assert done.stdout.count("peak  ") == 1, "of two alike one page"

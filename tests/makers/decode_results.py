"""Public results of text generation beside what is predicted for them."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path

from gputui.analysis.fit import GIB
from gputui.analysis.inference_fit import WEIGHT_FORMATS, ServedModel, decode_speed, weight_bytes
from gputui.analysis.statistics import Estimated
from gputui.facts.tables import GpuFacts, gpu_rows, peak_bandwidth, peak_for
from gputui.services.advise.published_models import model_named

FILE = Path(__file__).parents[1] / "services" / "advise" / "decode_speeds.csv"


@dataclass(frozen=True)
class Result:
    """One public result; every second one was used to choose the constants."""

    row: dict[str, str]
    is_aside: bool
    predicted: Estimated

    @property
    def seen(self) -> float:
        """Tokens per second of all sequences together."""
        return float(self.row["tokens_per_s"])

    @property
    def ratio(self) -> float:
        return self.predicted.value / self.seen

    @property
    def is_close(self) -> bool:
        return abs(self.ratio - 1) <= 0.2


def results() -> list[Result]:
    gpus = {row.name: GpuFacts(row, "") for row in gpu_rows()}
    found = []
    with FILE.open(encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.DictReader(file)):
            model, gpu = model_named(row["model"]), gpus[row["gpu"]]
            batch, context, count = (int(row[name]) for name in ("batch", "context", "gpus"))
            form = WEIGHT_FORMATS[row["precision"]]
            serving = ServedModel(model.parameters, form, "bf16", model, batch, context, count)
            if row["file_gib"]:  # a GGUF of another format, whose size is stated
                larger = float(row["file_gib"]) * GIB / weight_bytes(serving)
                serving = replace(serving, params=round(model.parameters * larger))
            predicted = decode_speed(serving, gpu.row.vendor, peak_bandwidth(gpu), peak_for(gpu, "fp16"))
            assert isinstance(predicted, Estimated), row
            found.append(Result(row, number % 2 == 1, predicted))
    return found

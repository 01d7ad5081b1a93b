"""Which language model is meant by a name, a `config.json`, or only a size, and its shape."""

from __future__ import annotations

import functools
import math
import re
from pathlib import Path

from gputui.analysis.fit import Shape
from gputui.analysis.model_config import shape_of
from gputui.errors import GputuiError
from gputui.facts.tables import model_configs, source_rows
from gputui.worker.foreign_json import read_json_file

_LARGEST_CONFIG_BYTES = 2**22
_VARIANT = re.compile(r"-(instruct|chat|it|base|hf|thinking|text|v[0-9.]+|[0-9]{4})$")
"""What names of models with the same shape end in."""


@functools.cache
def published_shapes() -> tuple[Shape, ...]:
    """All models of `models.csv`."""
    return tuple(
        shape_of(
            config, name, "; ".join(source_rows()[key].title for key in str(config["source"]).split(";"))
        )
        for name, config in model_configs().items()
    )


def typical_shape(params: int) -> Shape:
    """The published model that stands for those of this size: the nearest by ratio."""
    typical = [shape for shape in published_shapes() if "by_size" in model_configs()[shape.name]]
    return min(typical, key=lambda shape: abs(math.log(shape.parameters / params)))


def model_named(text: str) -> Shape:
    """The model of a name, of an unambiguous beginning of one, or of a `config.json` or its folder.

    Raises GputuiError for a name that means none or several, and a file that says no shape.
    """
    if text.endswith(".json") or Path(text, "config.json").is_file():
        return _shape_in(Path(text))
    wanted = _plain(text)
    known = {_plain(shape.name): shape for shape in published_shapes()}
    shorter = _VARIANT.sub("", wanted)
    for name in (wanted, shorter, _VARIANT.sub("", shorter)):
        meant = [known[name]] if name in known else [s for k, s in known.items() if k.startswith(name)]
        if len(meant) == 1:
            return meant[0]
        if meant:
            raise GputuiError(f"{text} may be several models", f"one of {_listed(meant)}")
    from difflib import get_close_matches  # only needed for a mistyped name

    close = [known[name] for name in get_close_matches(shorter, known, n=5, cutoff=0.4)]
    raise GputuiError(
        f"unknown model {text!r}",
        f"did you mean {_listed(close)}? " * bool(close)
        + "Else give its config.json, or its size, such as 7B; for result files --job TEXT",
    )


def _shape_in(path: Path) -> Shape:
    file = path / "config.json" if path.is_dir() else path
    try:
        config = read_json_file(file, _LARGEST_CONFIG_BYTES)
        if not isinstance(config, dict):
            raise ValueError("it is no object")
        return shape_of(config, file.resolve().parent.name, str(file))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise GputuiError(f"{file}: {why}", "give the config.json that a model is published with") from None


def _plain(name: str) -> str:
    """`llama-3.1-8b` of `meta-llama/Llama 3.1 8B`, `Meta-Llama-3.1-8B`, `llama3.1:8b`."""
    words = re.sub(r"[\s_:]+", "-", name.rpartition("/")[2].strip().lower())
    return re.sub(r"^(meta-)?(llama|qwen|gemma|phi)-?(?=[0-9])", r"\2", words)


def _listed(shapes: list[Shape]) -> str:
    return ", ".join(shape.name.replace(" ", "-") for shape in shapes[:8])

"""The moving picture of README.md: GPUs live, a run, three boxes, two of them compared; all of the demo."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from demo_pictures import watched
from rich.cells import cell_len
from terminal_svg import FOREGROUND, Colours, Frame, Piece, moving_svg, pieces_of_lines

from gputui.services.playback.demo_gpus import CAUTION, USD_PER_HOUR_AND_GPU, USER, DemoBox
from gputui.tui.monitor.model import MonitorModel
from gputui.tui.monitor.settings import MonitorSettings

NAME = "tour.svg"
SIZE = (120, 40)
Rows = Sequence[Sequence[Piece]]

SCENES: Mapping[str, tuple[str, float]] = {
    "run": ("gputui run: what is measured, and when it will be done (sped up)", 6.0),
    "boxes": ("gputui results: what each box does, and what a token costs there", 4.0),
    "compare": ("gputui compare: who is faster, by how much, how sure, at what price", 5.0),
    "evidence": ("and why", 4.0),
}
"""The caption of each scene, and how many seconds it lasts; in their order."""
_LIVE = "gputui: the live view, here on made-up data (gputui demo)"
_LIVE_FRAMES = 5
"""A second each."""
_MOST_FRAMES = 9
"""Of one scene: each costs bytes."""
_FILLED_S = 330
"""Of made-up readings, before the first frame: the charts are full then."""


def moving_picture(shots: Mapping[str, Sequence[Rows]]) -> str:
    """The picture as SVG, from what the screens showed in each of SCENES, in the order of time."""
    frames = list(_live())
    for name, (caption, seconds) in SCENES.items():
        chosen = _spread(shots[name])
        frames += [_with_caption(rows, caption, seconds / len(chosen)) for rows in chosen]
    return moving_svg(
        frames, SIZE[0], "gputui demo: GPUs live, a run, three boxes, and two of them compared; all made up"
    )


def _live() -> Iterator[Frame]:
    now_ns = 0
    model = MonitorModel(
        MonitorSettings(),
        usd_per_hour=8 * USD_PER_HOUR_AND_GPU,
        title="8 made-up GPUs",
        caution=CAUTION,
        user=USER,
        now=lambda: now_ns,
    )
    for second, sample in enumerate(watched(DemoBox(8), _FILLED_S + _LIVE_FRAMES)):
        model.add(sample)
        now_ns = sample.t_ns
        if second > _FILLED_S:
            yield _with_caption(pieces_of_lines(model.lines(*SIZE, now_ns)), _LIVE, 1.0)


def _spread(shots: Sequence[Rows]) -> Sequence[Rows]:
    """At most so many, evenly, with the first and the last."""
    if len(shots) <= _MOST_FRAMES:
        return shots
    last = len(shots) - 1
    return [shots[round(place * last / (_MOST_FRAMES - 1))] for place in range(_MOST_FRAMES)]


def _with_caption(rows: Rows, caption: str, seconds: float) -> Frame:
    left = (SIZE[0] - cell_len(caption)) // 2
    plain = Colours(FOREGROUND, "", True, False)
    return Frame([*rows, [], [(" " * left + caption, plain)]], seconds)

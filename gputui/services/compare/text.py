"""A comparison as plain text, as wide as where it is shown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from io import StringIO

from rich.console import Console
from rich.text import Text

from gputui.analysis.attribution import Attribution
from gputui.model.absent import Missing
from gputui.model.case import Case
from gputui.model.serving import SERVE_PROFILE
from gputui.model.units import counted
from gputui.services.compare.columns import COLUMNS, ComparisonColumn, Width
from gputui.services.compare.forest import forest_axis, mark_of
from gputui.services.compare.headline import main_row
from gputui.services.compare.pairing import Comparison, Row
from gputui.services.compare.ranking import fastest_text
from gputui.services.compare.row_text import (
    both_text,
    case_heading,
    change_text,
    choice_words,
    common_words,
    difference_words,
    doubted_point_text,
    mean_name,
    mean_point_text,
    no_difference_words,
    part_words,
    point_text,
    rate_text,
    rates_text,
    row_name,
    shared_words,
    side_words,
    verdict_text,
)
from gputui.services.compare.session import Answer, Asked
from gputui.services.compare.spread_text import spread_lines
from gputui.services.compare.suggestions import effort_words
from gputui.services.compare.tables import (
    Naming,
    TextTable,
    absent_lines,
    column_table,
    left_out,
    metric_table,
    missing_lines,
    performance_lines,
    remarks,
    row_table,
)
from gputui.services.compare.why import Why, sentence
from gputui.services.compare.why_text import finding_lines, part_table, trust_line, unattributed
from gputui.services.support.plain_text import command_lines
from gputui.services.support.text_tables import Page, Pieces, console_on, table_width

_LEAST_WIDE = 100
"""Columns of the terminal from which a wide table is tried."""
_LEAST_ROWS = 3
_LINES_AROUND = 4
"""A heading, two blank lines, and the last one."""
_MISSING_SHOWN = 2
_FOREST_PLACE = 4
_LEAST_FOREST, _WIDEST_FOREST = 9, 40
"""Columns that drawn intervals take."""


_STYLES = {
    "faster": "green",
    "cheaper": "green",
    "slower": "yellow",
    "dearer": "yellow",
    "inconclusive": "cyan",
}
"""Of verdicts and what is drawn of them: colours of the user's own palette."""


def comparison_as_text(
    asked: Asked,
    answer: Answer,
    columns: Sequence[ComparisonColumn] = (),
    width: int | None = None,
    is_verbose: bool = False,
) -> str:
    """All rows, without escape sequences; without a width in that of the terminal."""
    made = StringIO()
    out = console_on(made, width, is_terminal=False)
    for page in comparison_pages(asked, answer, columns, out, is_verbose):
        page.show()
    return made.getvalue()


def comparison_pages(
    asked: Asked,
    answer: Answer,
    columns: Sequence[ComparisonColumn],
    out: Console,
    is_verbose: bool = False,
    shows_all: bool = False,
    lines_below: int = 0,
) -> Iterator[Page]:
    """The headline, then each comparison once it is laid out.

    A terminal gets what fits on its screen, unless it is to show all: the main case, then the rows that
    differ most. Anything else gets all rows. Notes, flags, reasons and costs come with `is_verbose`.
    `lines_below` are left free for what the caller prints after it.
    """
    page = Page(out)
    page.add(Text(answer.headline.text, style="bold"))
    page.line()
    pairs = list(zip(answer.comparisons, answer.whys, strict=True))
    most_lines = None if shows_all or is_verbose or not out.is_terminal else out.size.height - 1 - lines_below
    if len(pairs) > 1 and not (is_verbose or columns):
        _write_many(page, asked, answer, most_lines)
        yield page
        return
    for place, (comparison, whys) in enumerate(pairs):
        if place:
            page = Page(out)
            page.line()
        end = Page(out)
        for line in _next_lines(answer, comparison, page.width if page.is_terminal else None, is_verbose):
            end.line(line, is_whole=bool(answer.headline.steps))  # a command can be copied from a file
        _write_sides(page, asked.ignore, comparison, is_verbose, place)
        left = 0
        if columns or is_verbose or not page.is_terminal:
            _write_rows(page, comparison, asked.ignore, columns, is_verbose)
        else:
            room = None if most_lines is None else most_lines - end.height - _LINES_AROUND - page.height
            left = _write_forest(page, comparison, asked.ignore, room)
        if is_verbose or columns:
            for line in absent_lines(comparison, columns):
                page.line(line)
        if is_verbose:
            _write_more(page, comparison, whys, asked.ignore, columns)
        if end.height:
            page.line()
            page.add(end)
        if out.is_terminal:
            more = [f"{counted(left, 'more row')}: --all"] if left else []
            more += [] if is_verbose else ["reasons: --verbose"]
            if not end.height:
                page.line()
            _write_options(page, (*more, "screen: --tui", "report: -o report.html"))
        yield page


def _write_sides(page: Page, ignore: str, comparison: Comparison, is_verbose: bool, place: int) -> None:
    """Both sides, and what differs, of the comparison at this place."""
    for letter, side in (("a", comparison.a), ("b", comparison.b)):
        page.line(f"{letter}  {side_words(side, ignore, page.width - 3)}")
    if place:
        page.line(part_words(place))
    for line in choice_words(comparison, ignore):
        page.line(line)
    words = ", ".join(map(difference_words, comparison.differs))
    if words:
        line = f"differs: {words}"
        page.line(line if is_verbose else _one_line(line, page.width))
    elif not ignore:
        page.line(no_difference_words(comparison))
    if not is_verbose:
        _write_missing(page, missing_lines(comparison, Naming(comparison, ignore)))
    page.line()


def _write_options(page: Page, options: Sequence[str]) -> None:
    """As many as fit in one line."""
    fitting = [
        options[:count] for count in range(1, len(options)) if len(" · ".join(options[:count])) <= page.width
    ]
    whole = " · ".join(options)
    page.line(whole if len(whole) <= page.width or not fitting else " · ".join(fitting[-1]))


def _write_missing(page: Page, lines: Sequence[str]) -> None:
    """What a side lacks; a terminal gets the two most serious reasons."""
    shown = lines[:_MISSING_SHOWN] if page.is_terminal else lines
    for line in shown:
        page.line(line)
    if len(lines) > len(shown):
        page.line(f"{counted(len(lines) - len(shown), 'more reason')} for missing rows: --verbose")


def _one_line(text: str, width: int) -> str:
    """As many of its parts as fit, and how many more there are."""
    parts = text.split(", ")
    kept = len(parts)
    while kept > 1 and len(_with_rest(parts, kept)) > width:
        kept -= 1
    return _with_rest(parts, kept)


def _with_rest(parts: Sequence[str], kept: int) -> str:
    rest = len(parts) - kept
    return ", ".join(parts[:kept]) + (f", {rest} more" if rest else "")


def _is_itself(row: Row) -> bool:
    """Whether both sides are the same measurement, so that nothing can tell them apart."""
    return (row.a.run, row.a.result) == (row.b.run, row.b.result)


def _next_lines(
    answer: Answer, comparison: Comparison, width: int | None, is_verbose: bool = False
) -> list[str]:
    """What would settle the main case, as a command for each box, broken to `width`; else how many rows are
    open."""
    steps = answer.headline.steps
    if steps:
        return [
            f"{answer.headline.purpose}, {effort_words(steps)}:",
            *(line for step in steps for line in command_lines(step.command, width, f"{step.box}$ ")),
        ]
    lines = []
    undecided = sum(row.rate.word == "inconclusive" and not _is_itself(row) for row in comparison.rows)
    if undecided and not is_verbose:
        rows = f"{undecided} of {counted(len(comparison.rows), 'row')}"
        lines.append(f"can't tell {rows}: --verbose says what would settle them")
    lacks = [
        letter
        for letter, side in (("a", comparison.a), ("b", comparison.b))
        if isinstance(side.run.price, Missing)
    ]
    if len(lacks) == 1:
        side = comparison.a if lacks[0] == "a" else comparison.b
        command = "serve-bench" if side.run.profile == SERVE_PROFILE else "run"
        lines.append(
            f"no cost: {lacks[0]} has no price; gputui {command} --price USD or --instance TYPE stores one"
        )
    return lines


def chosen_rows(rows: Sequence[Row], room: int | None) -> Sequence[Row]:
    """As many as there is room for: the main case, the largest decided differences, then the undecided; None
    is room for all, as they were measured."""
    if room is None:
        return rows
    main = main_row(rows)

    def place(row: Row) -> tuple[bool, int, bool, float]:
        is_one_sided = row.a.result is None or row.b.result is None
        kind = 0 if row.rate.differs else 1 if row.rate.word == "inconclusive" else 3 if is_one_sided else 2
        size = 0.0 if row.rate.ratio is None else abs(math.log(row.rate.ratio[0]))
        return row is not main, kind, row.case.variant.device_class != "gpu", -size

    return sorted(rows, key=place)[:room]


def _write_rows(
    page: Page,
    comparison: Comparison,
    ignore: str,
    columns: Sequence[ComparisonColumn],
    is_verbose: bool,
) -> None:
    """The table of rows; chosen columns that do not fit in it have a table each, below."""
    naming = Naming(comparison, ignore, has_notes=is_verbose)
    widths: list[Width] = ["narrow", "short"] if page.width < _LEAST_WIDE else ["wide", "narrow", "short"]
    beside: Sequence[ComparisonColumn] | None
    for beside in (columns, [c for c in columns if not c.table_heading]) if columns else (None,):
        tables = [row_table(comparison, naming, width, beside) for width in widths]
        table = _first_that_fits(page, tables)
        if _fits(page, table):
            break
    styles = ["bold" if row.rate.differs else "" for row in comparison.rows]
    styles += ["italic"] * (len(table.rows) - len(comparison.rows))
    page.table(table.headings, table.rows, table.numeric, styles)
    for column in columns:
        if beside is not None and column not in beside:
            _write_table(page, column_table(column, comparison, Naming(comparison, ignore)))


def _write_forest(page: Page, comparison: Comparison, ignore: str, most_lines: int | None) -> int:
    """The rows with their intervals drawn, and in figures too where there is room.

    Returns how many of them did not fit.
    """
    room = None if most_lines is None else max(most_lines, _LEAST_ROWS)
    rows = chosen_rows(comparison.rows, room)
    with_means = room is None or room >= len(rows) + len(comparison.groups)
    common = common_words(comparison, ignore)
    is_wide = page.width >= _LEAST_WIDE
    has_cost = any(row.cost.ratio is not None for row in rows)
    judged = [row.rate for row in rows]
    lines = [
        [
            row_name(row, common, ignore, is_short=True),
            *rates_text(row),
            change_text(row.rate) if is_wide else point_text(row.rate),
            verdict_text(row.rate),
            doubted_point_text(row.cost),
        ]
        for row in rows
    ]
    for group in comparison.groups if with_means else ():
        if group.rate.ratio is not None and group.common > 1:
            judged.append(group.rate)
            change = change_text(group.rate) if is_wide else mean_point_text(group.rate)
            lines.append([mean_name(group), "", "", change, verdict_text(group.rate), ""])
    headings = [case_heading(common), "a", "b", "b vs a", "verdict", "cost"]
    if not has_cost:
        headings, lines = headings[:-1], [line[:-1] for line in lines]
    cells = min(page.width - table_width((headings, *lines), page.encoding) - 1, _WIDEST_FOREST)
    painted: dict[tuple[int, int], Pieces] = {}
    if cells >= _LEAST_FOREST and any(rate.ratio is not None for rate in judged):
        axis = forest_axis([row.rate for row in rows], cells)
        headings.insert(_FOREST_PLACE, axis.heading())
        for place, (line, rate) in enumerate(zip(lines, judged, strict=True)):
            line.insert(_FOREST_PLACE, axis.drawn(rate))
            ((*pieces,),) = axis.lines([(mark_of(rate), rate)])
            painted[place, _FOREST_PLACE] = [
                (text, "not bold dim" if one is None else _STYLES.get(one.word, "")) for text, one in pieces
            ]
    for place, (line, rate) in enumerate(zip(lines, judged, strict=True)):
        painted[place, 3] = [(line[3], _STYLES.get(rate.word, "") if rate.differs else "")]
        verdict = headings.index("verdict")
        painted[place, verdict] = [(line[verdict], _STYLES.get(rate.word, ""))]
    for place, row in enumerate(rows if has_cost else ()):
        if row.cost.differs:
            painted[place, len(headings) - 1] = [(lines[place][-1], _STYLES[row.cost.word])]
    styles = ["bold" if row.rate.differs else "" for row in rows] + ["italic"] * (len(lines) - len(rows))
    page.table(headings, lines, (1, 2, 3, headings.index("verdict") + 1), styles, painted)
    return len(comparison.rows) - len(rows)


def parts_of(
    headings: Sequence[str], lines: Sequence[Sequence[str]], page: Page
) -> Iterator[tuple[int, int]]:
    """First and last + 1 column of each part: as many as fit beside the case and the baseline."""
    begin = 2
    while begin < len(headings):
        end = begin + 1
        while end < len(headings):
            kept = (0, 1, *range(begin, end + 1))
            table = [[line[column] for column in kept] for line in (headings, *lines)]
            if table_width(table, page.encoding) > page.width:
                break
            end += 1
        yield begin, end
        begin = end


def _answers(
    letters: Sequence[str], rows: Sequence[Sequence[Row | None]]
) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Headings and cells at the end of the table, the widest first: the fastest side, and costs against a."""
    fastest = []
    for of_case in rows:
        known = {letter: row for letter, row in zip(letters, of_case, strict=True) if row is not None}
        fastest.append(fastest_text(next(iter(known.values())).a, known) if known else "—")
    costs = [["" if row is None else doubted_point_text(row.cost) for row in of_case] for of_case in rows]
    if any(map(any, costs)):
        headings = ["fastest", *(f"cost {letter}" for letter in letters)]
        yield headings, [[name, *cells] for name, cells in zip(fastest, costs, strict=True)]
    yield ["fastest"], [[name] for name in fastest]


def _differs_of_many(letters: Sequence[str], comparisons: Sequence[Comparison]) -> str:
    """`differs from a: machine, driver (c)`: what, and of which sides if not of all; empty for nothing."""
    found: dict[str, list[str]] = {}
    for letter, comparison in zip(letters, comparisons, strict=True):
        for what, _, _ in comparison.differs:
            found.setdefault(what, []).append(letter)
    parts = (
        what if len(of) == len(letters) else f"{what} ({' and '.join(of)})" for what, of in found.items()
    )
    return f"differs from a: {', '.join(parts)}" if found else ""


def _write_many(page: Page, asked: Asked, answer: Answer, most_lines: int | None) -> None:
    """Three sides and more: a line for each side, and a column for each against the baseline."""
    sides = (answer.comparisons[0].a, *(comparison.b for comparison in answer.comparisons))
    letters = [chr(ord("a") + place) for place in range(len(sides))]
    for letter, side in zip(letters, sides, strict=True):
        page.line(f"{letter}  {side_words(side, asked.ignore, page.width - 3)}")
    differs = _differs_of_many(letters[1:], answer.comparisons)
    if differs or not asked.ignore:
        page.line(_one_line(differs or "no recorded differences", page.width))
    missing = [
        line
        for letter, comparison in zip(letters[1:], answer.comparisons, strict=True)
        for line in missing_lines(comparison, Naming(comparison, asked.ignore), f"a{letter}")
    ]
    _write_missing(page, list(dict.fromkeys(missing)))
    page.line()
    by_case: dict[Case, list[Row | None]] = {}
    for place, comparison in enumerate(answer.comparisons):
        for row in comparison.rows:
            by_case.setdefault(row.case, [None] * len(answer.comparisons))[place] = row
    first = [next(row for row in rows if row is not None) for rows in by_case.values()]
    room = None if most_lines is None else max(most_lines - page.height - _LINES_AROUND, _LEAST_ROWS)
    shown = chosen_rows(first, room)
    common = shared_words(first, asked.ignore)
    lines = [
        [
            row_name(row, common, asked.ignore, is_short=True),
            rate_text(row.a),
            *("—" if one is None else both_text(one.rate) for one in by_case[row.case]),
        ]
        for row in shown
    ]
    case = case_heading(common)
    headings = [case, "a", *(f"{letter} vs a" for letter in letters[1:])]
    painted: dict[tuple[int, int], Pieces] = {
        (place, 2 + side): [(both_text(one.rate), _STYLES.get(one.rate.word, ""))]
        for place, row in enumerate(shown)
        for side, one in enumerate(by_case[row.case])
        if one is not None
    }
    for more_headings, more_cells in _answers(letters[1:], [by_case[row.case] for row in shown]):
        wider = [[*line, *cells] for line, cells in zip(lines, more_cells, strict=True)]
        if table_width([[*headings, *more_headings], *wider], page.encoding) <= page.width:
            headings, lines = [*headings, *more_headings], wider
            break
    for first_side, last_side in parts_of(headings, lines, page):
        kept = (0, 1, *range(first_side, last_side))
        if first_side > 2:
            page.line()
        page.table(
            [headings[column] for column in kept],
            [[line[column] for column in kept] for line in lines],
            range(1, len(kept)),
            (),
            {
                (place, kept.index(column)): text
                for (place, column), text in painted.items()
                if column in kept
            },
        )
    if not page.is_terminal:
        return
    page.line()
    left = len(first) - len(shown)
    more = [f"{counted(left, 'more row')}: --all"] if left else []
    _write_options(page, (*more, "each vs a, with reasons: --verbose", "screen: --tui"))


def _write_more(
    page: Page,
    comparison: Comparison,
    whys: Sequence[Why],
    ignore: str,
    columns: Sequence[ComparisonColumn],
) -> None:
    """Notes, flags, what could have been seen, reasons, metrics, costs, and what was left out."""
    naming = Naming(comparison, ignore)
    for row in comparison.rows:
        naming.verdict(row)
    for number, note in enumerate(naming.notes, 1):
        page.line(f"[{number}] {note}")
    for line in (*remarks(comparison, naming), *spread_lines(comparison), *performance_lines(comparison)):
        page.line(line)
    _write_whys(page, whys, naming)
    _write_table(page, metric_table(comparison, naming))
    for column in COLUMNS:
        if column.default == "below" and not columns:
            _write_table(page, column_table(column, comparison, naming))
    for line in left_out(comparison, naming):
        page.line(line)


def _write_table(page: Page, table: TextTable | None) -> None:
    if table is not None:
        page.line()
        page.table(table.headings, table.rows, table.numeric)


def _write_whys(page: Page, whys: Sequence[Why], naming: Naming) -> None:
    """The block of each row, then those that have none with the reason; nothing of what was not profiled."""
    for why in whys:
        name = naming.name(why.row)
        if isinstance(why.attribution, Attribution):
            _write_why(page, why, why.attribution, name)
        elif why.findings_a or why.findings_b:
            page.line()
            page.add(Text(f"{name}:", style="bold"))
            _write_findings(page, why)
    absent = list(unattributed(whys, naming))
    if absent:
        page.line()
    for line in absent:
        page.line(line)


def _write_why(page: Page, why: Why, found: Attribution, name: str) -> None:
    page.line()
    page.add(Text.assemble((f"why {name}: ", "bold"), sentence(why.row, found)))
    tables = [_indented(part_table(found, with_peak=with_peak)) for with_peak in (True, False)]
    table = _first_that_fits(page, tables)
    page.table(table.headings, table.rows, right=range(1, len(table.headings)))
    page.line(f"  {trust_line(found)}")
    _write_findings(page, why)


def _write_findings(page: Page, why: Why) -> None:
    for line in finding_lines(why):
        page.line(f"  {line}")


def _indented(table: TextTable) -> TextTable:
    headings, *rows = ((f"  {first}", *rest) for first, *rest in (table.headings, *table.rows))
    return TextTable(headings, tuple(rows), table.numeric)


def _first_that_fits(page: Page, tables: Sequence[TextTable]) -> TextTable:
    """Else the last."""
    return next((table for table in tables if _fits(page, table)), tables[-1])


def _fits(page: Page, table: TextTable) -> bool:
    return table_width((table.headings, *table.rows), page.encoding) <= page.width

# ruff: noqa: PTH118, PTH119, PTH123, PTH115, PTH116, PTH208, PTH103, PTH110
"""Follows a planted value through every function of gputui in this process.

Python imports this file by its name. It works where GPUTUI_WALK names a directory with `forms.json`: how the
value looks on its way, each form a name with a list of texts or numbers. A function has the value when an
argument or a returned object holds it in one of these forms. It got it from its caller, from a function it
called, from an attribute that another function assigned, or from a file or pipe that another process wrote;
the walk begins below the path given for the first form. The shortest way to each function counts, and of
equally short ones the first; what an attribute holds came by the last assignment.
"""

from __future__ import annotations

import dis
import json
import os
import stat
import sys
import threading
from dataclasses import is_dataclass
from functools import cache, partial
from math import isclose
from types import CodeType, FrameType
from typing import Any

Hop = str
Way = tuple[Hop, ...]
_DIRECTORY = os.environ.get("GPUTUI_WALK", "")
_WRITES, _READS = "write", "read"
"""Built-in methods and functions of files and pipes."""
_WRITES_DATABASE = frozenset({"execute", "append_rows"})
_READS_DATABASE = frozenset({"fetchall", "fetchmany"})
"""Of DuckDB, whose calls Python does not report: functions that name them are taken to call them."""
_MUTATE = frozenset({"append", "add", "extend", "update", "setdefault", "put", "appendleft", "insert"})
_MOST_OBJECTS = 20_000
_PARTS = frozenset({"<module>", "<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>"})
"""No functions: what they do counts for the one they run in."""


class _Form:
    """How the value looks: a number, or a text that holds one of these."""

    def __init__(self, name: str, patterns: list[Any]) -> None:
        self.name = name
        self.numbers = tuple(pattern for pattern in patterns if not isinstance(pattern, str))
        self.texts = tuple(pattern for pattern in patterns if isinstance(pattern, str))
        self.bytes = tuple(text.encode() for text in self.texts)

    def is_number(self, value: float) -> bool:
        """Exactly an integer, or nearly a floating-point number."""
        return any(
            value == number if isinstance(number, int) else isclose(value, number, rel_tol=1e-9)
            for number in self.numbers
        )


class _Visit:
    """One call of a function of gputui: in which forms it has the value, and the way of each to it."""

    def __init__(self, frame: FrameType) -> None:
        self.frame = frame
        self.ways: dict[str, Way] = {}
        self.read: dict[str, str] = {}
        """By device and inode, the path of each file and pipe that was open when it read one."""


class Tracer:
    """The profile function of all threads."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        with open(os.path.join(directory, "forms.json"), encoding="utf-8") as file:
            config = json.load(file)
        self._forms = [_Form(name, patterns) for name, patterns in config["forms"].items()]
        self._order = {form.name: place for place, form in enumerate(self._forms)}
        self._begins: dict[str, str] = config["begins"]
        """By form, the beginning of the path of the functions that may have it from nowhere."""
        self._ends: frozenset[str] = frozenset(config["ends"])
        self._files = os.path.join(directory, "files")
        self._kept = os.path.join(directory, "kept")
        """A second name of every file and pipe that was read or written. While it has one, a file that was
        removed does not leave its inode to another, which would then seem to hold what the first held."""
        os.makedirs(self._kept, exist_ok=True)
        self._log = os.path.join(directory, "left.jsonl")
        self._visits: dict[int, _Visit] = {}
        self._stored: dict[tuple[str, str, str], tuple[Way, threading.Thread]] = {}
        """By class (empty: any), attribute and form: the way to where it was assigned, and the thread."""
        self._left: set[tuple[str, str, Way]] = set()
        self._lock = threading.RLock()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Called by Python at every call and return."""
        if sys.is_finalizing():
            return  # a daemon thread that Python ended may have the lock
        if event == "c_call":
            name = argument.__name__
            if name in (_WRITES, _READS):
                caller = _outer(frame)
                if caller is not None:
                    with self._lock:
                        self._c_call(caller, name)
            return
        if event in ("c_exception", "c_return") or _hop(frame.f_code) is None:
            return
        with self._lock:
            if event == "call":
                self._call(frame)
            elif event == "return":
                self._return(frame, argument)

    # Calls and returns

    def _call(self, frame: FrameType) -> None:
        code = frame.f_code
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
        given = [frame.f_locals[name] for name in code.co_varnames[:count] if name in frame.f_locals]
        if code.co_argcount and code.co_varnames[0] == "self" and given and not _is_value(given[0]):
            given = given[1:]
        if not given:
            return
        caller = _outer(frame.f_back)
        for form in self._held(given):
            way = self._way_of(caller, form) if caller is not None else self._from_outside(frame, form)
            if way is not None:
                self._arrive(frame, form, way)

    def _return(self, frame: FrameType, value: Any) -> None:
        if not _READS_DATABASE.isdisjoint(frame.f_code.co_names):
            self._has_read(frame)
        visit = self._visits.get(id(frame))
        if (
            visit is not None
            and visit.frame is frame
            and not _WRITES_DATABASE.isdisjoint(frame.f_code.co_names)
        ):
            for name, known in visit.ways.items():
                self._leave(name, known)
        if value is not None:
            caller = _outer(frame.f_back)
            for form in self._held([value]):
                way = self._way_of(frame, form)
                if way is not None and caller is not None:
                    self._arrive(caller, form, way)
        if not frame.f_code.co_flags & 0x2A0:  # a generator or coroutine may go on
            self._visits.pop(id(frame), None)

    def _arrive(self, frame: FrameType, form: str, way: Way) -> None:
        hop = _hop(frame.f_code)
        assert hop is not None
        if hop not in way:
            way = (*way, hop)
        visit = self._visit(frame)
        if way == visit.ways.get(form) or len(way) > len(visit.ways.get(form, way)):
            return
        if len(way) < len(visit.ways.get(form, (*way, hop))):
            visit.ways[form] = way
        for owner, attribute in _assigned(frame.f_code):
            known = self._stored.get((owner, attribute, form))
            if known is None or len(way) <= len(known[0]):
                self._stored[owner, attribute, form] = way, threading.current_thread()
        if hop.split(" ")[-1] in self._ends:
            self._leave(form, way)

    def _visit(self, frame: FrameType) -> _Visit:
        visit = self._visits.get(id(frame))
        if visit is None or visit.frame is not frame:
            visit = self._visits[id(frame)] = _Visit(frame)
        return visit

    def _way_of(self, frame: FrameType, form: str) -> Way | None:
        """The way of the value to a function that has it."""
        visit = self._visits.get(id(frame))
        if visit is not None and visit.frame is frame:
            if form in visit.ways:
                return visit.ways[form]
            earlier = [way for name, way in visit.ways.items() if self._order[name] < self._order[form]]
            if earlier:  # it made this form of another
                self._arrive(frame, form, min(earlier, key=_length))
                return self._visits[id(frame)].ways[form]
        return self._from_outside(frame, form)

    def _from_outside(self, frame: FrameType, form: str) -> Way | None:
        visit = self._visits.get(id(frame))
        way = self._from_attribute(frame, form)
        if way is None and visit is not None and visit.frame is frame and visit.read:
            way = self._from_file(visit.read, form)
        if way is None and form in self._begins and (_hop(frame.f_code) or "").startswith(self._begins[form]):
            way = ()
        if way is None:
            return None
        self._arrive(frame, form, way)
        return self._visits[id(frame)].ways[form]

    def _from_attribute(self, frame: FrameType, form: str) -> Way | None:
        """What it finds in an attribute of its variables, or of what they hold."""
        found: list[Way] = []
        names = frozenset(_loaded(frame.f_code))
        seen: set[int] = set()
        waiting: list[tuple[object, frozenset[str] | None]] = [
            (thing, names) for thing in frame.f_locals.values()
        ]
        while waiting and len(seen) < _MOST_OBJECTS:
            thing, loaded = waiting.pop()
            if id(thing) in seen:
                continue
            seen.add(id(thing))
            if isinstance(thing, (list, tuple)):
                waiting += [(each, loaded) for each in thing]
            elif isinstance(thing, dict):
                waiting += [(each, loaded) for each in thing.values()]
            elif isinstance(thing, partial):
                waiting += [(each, loaded) for each in (*thing.args, thing.keywords)]
            elif type(thing).__module__.startswith("gputui") or "gputui_worker" in type(thing).__module__:
                fields = getattr(type(thing), "__dataclass_fields__", ())
                for name in {*fields, *(loaded or ())}:
                    if isinstance(getattr(type(thing), name, None), property):
                        continue
                    value = getattr(thing, name, None)
                    if value is None or (callable(value) and not isinstance(value, partial)):
                        continue
                    waiting.append((value, loaded))
                    stored = self._best_stored(type(thing), name, form)
                    if stored is not None and form in self._held([value]):
                        way, thread = stored
                        if thread is not threading.current_thread():
                            way = (*way, f"queue {type(thing).__name__}.{name} to another thread")
                        found.append(way)
        return min(found, key=_length, default=None)

    def _best_stored(self, owner: type, name: str, form: str) -> tuple[Way, threading.Thread] | None:
        keys = [(kind.__name__, name, form) for kind in owner.__mro__] + [("", name, form)]
        ways = [self._stored[key] for key in keys if key in self._stored]
        return min(ways, key=lambda stored: _length(stored[0]), default=None)

    # Files and pipes

    def _c_call(self, frame: FrameType, name: str) -> None:
        if name == _READS:
            self._has_read(frame)
            return
        for form in self._forms:
            visit = self._visits.get(id(frame))
            if visit is None or form.name not in visit.ways:
                found = self._from_attribute(frame, form.name)
                if found is not None:
                    self._arrive(frame, form.name, found)
        for name_of_form, way in self._visit(frame).ways.items():
            self._leave(name_of_form, way)

    def _has_read(self, frame: FrameType) -> None:
        self._visit(frame).read.update(self._open_files(writable=False))

    def _leave(self, form: str, way: Way) -> None:
        media = sorted(self._open_files(writable=True))
        if (form, ",".join(media), way) in self._left:
            return
        self._left.add((form, ",".join(media), way))
        data = json.dumps({"form": form, "media": media, "way": way}) + "\n"
        descriptor = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(descriptor, data.encode())
        os.close(descriptor)

    def _from_file(self, read: dict[str, str], form: str) -> Way | None:
        found: list[Way] = []
        try:
            with open(self._log, encoding="utf-8") as file:
                lines = file.read().split("\n")[:-1]  # without one that is being written
        except FileNotFoundError:
            return None
        for line in lines:
            left = json.loads(line)
            for medium in read.keys() & left["media"] if left["form"] == form else ():
                kind = self._kind_of(medium, form)
                if kind:
                    found.append((*left["way"], f"{kind} {os.path.basename(read[medium])}"))
        return min(found, key=_length, default=None)

    def _open_files(self, *, writable: bool) -> dict[str, str]:
        """By device and inode, the paths of those that this process has open to write or read."""
        found = {}
        for descriptor in os.listdir("/proc/self/fd"):
            try:
                path = os.readlink(f"/proc/self/fd/{descriptor}")
                if not path.startswith(self._files):
                    continue
                with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as info:
                    flags = int(info.read().split("flags:")[1].split()[0], 8)
                if flags & os.O_ACCMODE == (os.O_RDONLY if writable else os.O_WRONLY):
                    continue
                status = os.stat(path)
                medium = f"{status.st_dev}-{status.st_ino}"
                if not os.path.exists(os.path.join(self._kept, medium)):
                    os.link(path, os.path.join(self._kept, medium))
            except FileExistsError:
                pass  # another process has just named it
            except OSError:
                continue  # closed meanwhile, or removed: no other process opens it any more
            found[medium] = path
        return found

    def _kind_of(self, medium: str, form: str) -> str:
        """`pipe` or `file`; empty for a file without the value. A pipe or database is taken to hold it."""
        path = os.path.join(self._kept, medium)
        if stat.S_ISFIFO(os.stat(path).st_mode):
            return "pipe"
        with open(path, "rb") as file:
            data = file.read()
        texts = self._forms[self._order[form]].bytes
        return "file" if data[8:12] == b"DUCK" or any(text in data for text in texts) else ""

    # What holds the value

    def _held(self, things: list[Any]) -> list[str]:
        """In which forms these objects hold the value."""
        found: set[str] = set()
        waiting = list(things)
        seen: set[int] = set()
        while waiting and len(seen) < _MOST_OBJECTS:
            thing = waiting.pop()
            kind = type(thing)
            if kind is int or kind is float:
                found.update(form.name for form in self._forms if form.is_number(thing))
            elif kind is str:
                found.update(form.name for form in self._forms if any(text in thing for text in form.texts))
            elif kind is bytes:
                found.update(form.name for form in self._forms if any(text in thing for text in form.bytes))
            elif id(thing) in seen or thing is None or kind is bool:
                continue
            else:
                seen.add(id(thing))
                if isinstance(thing, (list, tuple, set, frozenset)):
                    waiting += thing
                elif isinstance(thing, dict):
                    waiting += thing.values()
                elif isinstance(thing, partial):
                    waiting += (*thing.args, thing.keywords)
                elif kind.__name__ in ("ndarray", "MaskedArray"):
                    waiting += thing.ravel().tolist()
                elif kind.__module__.startswith("gputui") and is_dataclass(thing):
                    names = list(thing.__dataclass_fields__)
                    waiting += [getattr(thing, name) for name in names if hasattr(thing, name)]
        return sorted(found, key=lambda name: self._order[name])


def _length(way: Way) -> tuple[int, Way]:
    """The order of ways; of equally short ones found at once, the same comes first in every process."""
    return len(way), way


def _is_value(thing: object) -> bool:
    """Whether it is an object that cannot change: it is handed on as a whole."""
    parameters = getattr(type(thing), "__dataclass_params__", None)
    return isinstance(thing, tuple) or (parameters is not None and parameters.frozen)


@cache
def _hop(code: CodeType) -> Hop | None:
    """`gputui/store/rows.py _block_row`; None if it is no function of gputui."""
    path = code.co_filename.replace("/gputui_worker/", "/gputui/worker/")
    at = path.rfind("/gputui/")
    if at < 0 or code.co_name in _PARTS:
        return None
    return f"{path[at + 1 :]} {code.co_qualname.replace('.<locals>', '')}"


@cache
def _assigned(code: CodeType) -> frozenset[tuple[str, str]]:
    """Attributes that a function assigns, or puts something into, with the class where it is `self`'s."""
    found = set()
    own = code.co_qualname.rpartition(".")[0].rpartition(".")[2]
    loaded = ("", "")
    before = None
    for step in dis.get_instructions(code):
        is_own = before is not None and before.opname == "LOAD_FAST" and before.argval == "self"
        if step.opname == "STORE_ATTR":
            found.add((own if is_own else "", step.argval))
        elif step.opname == "LOAD_ATTR":
            loaded = (own if is_own else "", step.argval)
        elif loaded[1] and (
            step.opname == "STORE_SUBSCR" or (step.opname == "LOAD_METHOD" and step.argval in _MUTATE)
        ):
            found.add(loaded)
        before = step
    return frozenset(found)


@cache
def _loaded(code: CodeType) -> tuple[str, ...]:
    inner = [name for each in code.co_consts if isinstance(each, CodeType) for name in _loaded(each)]
    return tuple(dict.fromkeys([*code.co_names, *inner]))


def _outer(frame: FrameType | None) -> FrameType | None:
    """The innermost function of gputui from here outwards."""
    while frame is not None and _hop(frame.f_code) is None:
        frame = frame.f_back
    return frame


if _DIRECTORY:
    _tracer = Tracer(_DIRECTORY)
    threading.setprofile(_tracer)
    sys.setprofile(_tracer)

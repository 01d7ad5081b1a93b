"""From a URL and options to a run that the supervisor can execute: which loads, how often, in which order."""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from gputui.errors import GputuiError, MachineLacks
from gputui.machine.describing import describe_machine
from gputui.machine.layers import storage_warning
from gputui.model.absent import Missing
from gputui.model.machine import Runtime
from gputui.model.plan import (
    WHOLE_BOX,
    Case,
    Parameter,
    Plan,
    PlannedCase,
    PlannedDevice,
    PlannedLaunch,
    PlannedLoad,
    program_case,
)
from gputui.model.serving import SERVE_PROFILE
from gputui.model.units import counted, format_seconds, number_from
from gputui.recording.run_directory import Spec
from gputui.services.prices import check_instance, price_of
from gputui.services.runs.process import new_run_id, writable_target
from gputui.services.serving.profiles import (
    DEFAULT_ATTAINED_SHARE,
    RANDOM_WORDS,
    Limits,
    RequestProfile,
    find_request_profile,
)
from gputui.services.support.paths import hash_key
from gputui.store.selecting import check_label
from gputui.worker.foreign_json import read_json
from gputui.worker.serving.request import (
    LENGTHS,
    TOKENS_PER_WORD,
    FilePrompts,
    Prompts,
    address_of,
    is_own,
    prompts_in,
)
from gputui.worker.serving.server import (
    ANSWER_TIMEOUT_S,
    ServerError,
    ServerIdentity,
    accepted_load,
    find_server,
)

N = TypeVar("N", int, float)
VERSION = 2
DEFAULT_USERS = (1, 2, 4, 8, 16, 32)
DEFAULT_BUDGET_S = 600.0
DEFAULT_LAUNCHES = 3
SEARCH_WEIGHT = 5.0
"""Of the search, relative to one number of users: it offers several rates."""
MOST_USERS = 2000
MOST_RATE_PER_S = 10_000.0
PROBE_TOKENS = 8
LEAST_ANSWERS = 5
"""One after the other, that a launch must have time for: two before its load, and three in it."""
FIND_S = 20.0
"""In which a server has to say what it is. Then it has as long as the budget to answer something."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BYTES_PER_TOKEN = 4
MOST_BODY_BYTES = 64 * 1024
_OURS = frozenset(
    ("model", "stream", "stream_options", "messages", "prompt", "max_tokens", "max_completion_tokens")
)
_FEW_LAUNCHES = 6
"""Of --concurrency 1,8 --launches 2 with a search; with no more, there is little to leave out."""


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The options of `gputui serve-bench`."""

    url: str
    profile: str = "chat"
    api: str = ""
    """`chat` or `completions`; empty for the first that answers."""
    model: str = ""
    """Empty for the only one that the server lists."""
    name: str = ""
    """What the model is called in results; empty for its own name."""
    users: tuple[int, ...] = DEFAULT_USERS
    rates_per_s: tuple[float, ...] = ()
    limits: Limits | None = None
    """None for those of the profile; without any, there is no search."""
    attained_share: float = DEFAULT_ATTAINED_SHARE
    shared_tokens: int | None = None
    """None for those of the profile."""
    prompts: Path | None = None
    """A file of prompts; None for random words."""
    body: str = "{}"
    """A JSON object for each request, as `body_from` returns it."""
    launches: int = DEFAULT_LAUNCHES
    budget_s: float = DEFAULT_BUDGET_S
    seed: int = 0
    """Equal by default, so that every box gets the same arrivals."""
    key_name: str = ""
    db: Path | None = None
    label: str = ""
    machine: str = ""
    price: float | None = None
    instance: str | None = None


@dataclass(frozen=True, slots=True)
class PreparedServe:
    """A run of loads that can be started."""

    spec: Spec
    target: Path
    server: ServerIdentity
    profile: RequestProfile
    is_here: bool
    """Whether the server's address is one of this box."""
    notes: tuple[str, ...]
    """What the user should know before it begins, also that the file would be lost with the machine."""


def prepare_serve(options: ServeOptions) -> PreparedServe:
    """Check the options, ask the server what it is, send it one short request, and plan; starts nothing.

    Blocks until the server has answered. Raises GputuiError for what is wrong, MachineLacks if nothing there
    can be measured.
    """
    check_label(options.label)
    profile = _profile(options)
    try:
        address = address_of(options.url)
    except ValueError as error:
        raise GputuiError(
            f"the URL of the server: {error}", "such as http://127.0.0.1:8000 or https://api.example.com/v1"
        ) from error
    key, is_here = key_from(options.key_name), is_own(address.host)
    if key and not address.is_tls and not is_here:
        raise GputuiError(
            f"the key in {options.key_name} would travel unencrypted to {address.host_header}",
            "use https://, or an ssh tunnel: ssh -L 8000:127.0.0.1:8000 HOST, then http://127.0.0.1:8000",
        )
    target = writable_target(options.db)
    machine = describe_machine(name=options.machine, hash_key=hash_key())
    if options.instance is not None and options.price is None:
        check_instance(options.instance, machine)
    # the list price of this box says nothing of another that answers
    has_price = is_here or options.price is not None or options.instance is not None
    price = price_of(options.price, options.instance, machine) if has_price else None
    deadline_s = time.monotonic() + FIND_S + min(options.budget_s, ANSWER_TIMEOUT_S)
    try:
        server = find_server(address, key, min(time.monotonic() + FIND_S, deadline_s))
        load = _accepted(_load(options, profile, server), options.api, key, server, deadline_s)
    except ServerError as error:
        raise MachineLacks(error.message, error.hint) from error
    load = replace(load, output_tokens=profile.output_tokens)
    if options.prompts is not None:
        _with_prompts(profile, options.prompts, load.api)  # the API that the server has may not take them
        load = replace(load, prompts_path=str(options.prompts.resolve()))
    _check_context(profile, server)
    notes = []
    if not load.ignores_eos:
        notes.append("the server does not know ignore_eos: answers may end before their wanted length")
    if server.models and load.model not in server.models:
        has = _models_text(server)
        notes.append(f"the server does not list model {load.model!r}, but answers to it; it has {has}")
    if not is_here:
        notes.append("the server is not on this box: what is stored of the machine is this one's")
    if lost := storage_warning(target, machine.layers):
        notes.append(lost)
    plan = _plan(options, profile, load)
    _check_budget(plan, profile, _alone_s(load, key, deadline_s))
    runtime = Runtime.without_torch(Missing("a load on a server asks no interpreter"))
    return PreparedServe(
        Spec(new_run_id(), plan, runtime, options.label, price, options.machine, hash_key(), str(target)),
        target,
        server,
        profile,
        is_here,
        tuple(notes),
    )


def _profile(options: ServeOptions) -> RequestProfile:
    """What is sent, and within which limits. Raises GputuiError for options that do not go with it."""
    profile = replace(find_request_profile(options.profile), body=options.body)
    shared = options.shared_tokens
    if shared is not None:
        if not 0 <= shared < profile.prompt_tokens:
            raise GputuiError(
                f"--shared-prefix {shared}: prompts of {profile.name} have {profile.prompt_tokens} tokens",
                f"from 0 to {profile.prompt_tokens - 1}",
            )
        profile = replace(profile, shared_tokens=shared)
    if options.prompts is not None:
        profile = _with_prompts(profile, options.prompts, options.api or "chat")
    return profile if options.limits is None else replace(profile, limits=options.limits)


def _check_context(profile: RequestProfile, server: ServerIdentity) -> None:
    """Raise GputuiError if the longest request is too long for the server."""
    longest = 1 + LENGTHS if profile.prompts == RANDOM_WORDS else 1.0
    needed = math.ceil(profile.prompt_tokens * longest) + profile.output_tokens
    if server.context_tokens is not None and needed > server.context_tokens:
        raise GputuiError(
            f"profile {profile.name} needs a context of {needed} tokens,"
            f" the server has {server.context_tokens}",
            "start the server with a larger context, or choose a shorter profile: see docs/serving.md",
        )


def _with_prompts(profile: RequestProfile, path: Path, api: str) -> RequestProfile:
    """The profile with the prompts of a file, of about as many tokens. Raises GputuiError if it is none."""
    if profile.shared_tokens:
        raise GputuiError("--prompts: the file says what prompts begin with", "leave --shared-prefix out")
    try:
        found, digits = prompts_in(path, api)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise GputuiError(f"--prompts {path}: {why}", "see docs/serving.md") from None
    tokens = round(sum(map(len, found)) / len(found) / _BYTES_PER_TOKEN)
    return replace(profile, prompt_tokens=max(tokens, 1), prompts=f"file {digits[:8]}")


def body_from(text: str) -> str:
    """Check `{"temperature": 0}`, what is merged into requests. Raises GputuiError."""
    hint = """a JSON object, such as '{"temperature": 0}'"""
    try:
        plain = read_json(text, MOST_BODY_BYTES)
    except ValueError:
        raise GputuiError("--body: it is not JSON that a request could have", hint) from None
    if not isinstance(plain, dict):
        raise GputuiError("--body: it is not an object", hint)
    if taken := sorted(_OURS & plain.keys()):
        raise GputuiError(f"--body: {taken[0]} is what gputui itself sets", "leave it out")
    return json.dumps(plain, sort_keys=True)


def key_from(name: str) -> str:
    """The API key in an environment variable; never shown. Raises GputuiError if it is not there."""
    if not name:
        return ""
    if not _NAME.fullmatch(name):  # perhaps the key itself, so it is not repeated
        raise GputuiError(
            "--api-key-env: wants the name of an environment variable, not the key",
            "export LLM_KEY=..., then --api-key-env LLM_KEY",
        )
    key = os.environ.get(name, "")
    if not key:
        raise GputuiError(f"--api-key-env {name}: this variable is empty or not set", f"export {name}=...")
    if not key.isascii() or any(character <= " " for character in key):
        raise GputuiError(
            f"--api-key-env {name}: its value has spaces, line ends or non-ASCII letters", "set it again"
        )
    return key


def _load(options: ServeOptions, profile: RequestProfile, server: ServerIdentity) -> PlannedLoad:
    """What all loads have in common, for a few tokens. Raises GputuiError if the model is not clear."""
    model = options.model
    if not model and not server.models:
        raise GputuiError("the server lists no model", "name it: --model NAME")
    if not model and len(server.models) > 1:
        raise GputuiError(
            f"the server has {len(server.models)} models", f"name one with --model: {_models_text(server)}"
        )
    limits = profile.limits
    return PlannedLoad(
        options.url,
        options.api,
        model or server.models[0],
        PROBE_TOKENS,
        key_name=options.key_name,
        prompt_tokens=profile.prompt_tokens,
        shared_tokens=profile.shared_tokens,
        ttft_s=limits.ttft_s,
        tpot_s=limits.tpot_s,
        e2e_s=limits.e2e_s,
        attained_share=options.attained_share,
        extra=options.body,
    )


def _accepted(
    load: PlannedLoad, api: str, key: str, server: ServerIdentity, deadline_s: float
) -> PlannedLoad:
    """The load as the server accepts it, found with a short request; of the chat API if it has that.

    The error for a model that the server does not list names those that it does.
    """
    prompt = Prompts(PROBE_TOKENS, 0, os.urandom(8), TOKENS_PER_WORD).usual()
    first: ServerError | None = None
    for tried in (api,) if api else ("chat", "completions"):
        try:
            return accepted_load(replace(load, api=tried), key, prompt, deadline_s)[0]
        except ServerError as error:
            first = first or error
    assert first is not None
    if not server.models or load.model in server.models:
        raise first
    message = f"the server does not list model {load.model!r}, and {first.message}"
    raise ServerError(message, f"it has {_models_text(server)}") from first


def _models_text(server: ServerIdentity) -> str:
    return ", ".join(server.models[:6]) + (", ..." if len(server.models) > 6 else "")


def _alone_s(load: PlannedLoad, key: str, deadline_s: float) -> float | None:
    """How long one request of the load takes with nothing beside it, at least; None if it is not answered.

    Why it is not shows in the run, whose first answer says how many tokens a word has.
    """
    prompts: Prompts | FilePrompts = Prompts(load.prompt_tokens, 0, os.urandom(16), TOKENS_PER_WORD)
    if load.prompts_path:
        prompts = FilePrompts(prompts_in(Path(load.prompts_path), load.api)[0], "")
    begun_s = time.monotonic()
    try:
        accepted_load(load, key, prompts.usual(), deadline_s)
    except ServerError:
        if time.monotonic() < deadline_s:
            return None
    return time.monotonic() - begun_s


def _check_budget(plan: Plan, profile: RequestProfile, alone_s: float | None) -> None:
    """Refuse a budget in which no load can be measured. Raises GputuiError with one that is enough."""
    weights = [launch.weight for launch in plan.launches]
    share = min(weights) / sum(weights)
    if alone_s is None or plan.budget_s * share >= LEAST_ANSWERS * alone_s:
        return
    needed_s = math.ceil(LEAST_ANSWERS * alone_s / share / 60) * 60
    is_small = len(weights) <= _FEW_LAUNCHES
    raise GputuiError(
        f"--budget {plan.budget_s:g} is too short: one request of {profile.name} takes"
        f" {format_seconds(alone_s)} alone, and each of {counted(len(weights), 'launch')} has"
        f" {format_seconds(plan.budget_s * share)}",
        f"--budget {needed_s}{'' if is_small else ', or fewer loads: --concurrency 1,8 --launches 2'}",
    )


def _plan(options: ServeOptions, profile: RequestProfile, load: PlannedLoad) -> Plan:
    """Each number of users, each rate and the search, once per replicate in an order that differs."""
    cases: list[PlannedCase] = []
    loads: list[PlannedLoad] = []
    weights: list[float] = []

    def add(one: PlannedLoad, words: str, unit: str, weight: float, of_load: dict[str, Parameter]) -> None:
        model = options.name or shown_name(load.model)
        parameters = [("load", one.kind), *of_load.items()]
        case = serving_case(profile, words, unit, model, load.api, parameters)
        loads.append(replace(one, case_id=len(cases)))
        cases.append(PlannedCase(len(cases), case, None, ""))
        weights.append(weight)

    for users in options.users:
        one = replace(load, kind="closed", users=users)
        add(one, counted(users, "user"), "tok", 1.0, {"users": users})
    for rate in options.rates_per_s:
        one = replace(load, kind="open", rate_per_s=rate)
        add(one, f"{rate:g} req/s", "tok", 2.0, {"rate_per_s": rate})
    if profile.limits:
        limits = {f"limit_{name}_s": limit for name, limit in profile.limits.parts if limit is not None}
        attained = {"attained_share": options.attained_share, **limits}
        add(replace(load, kind="search"), "limit", "req", SEARCH_WEIGHT, {**attained})
    if not cases:
        raise GputuiError(
            "there is nothing to measure: no users, no rates and no limits",
            "leave --concurrency or --slo out, or name a --rate",
        )
    order = random.Random(options.seed)
    device = PlannedDevice(WHOLE_BOX, "", "", "", "")
    launches: list[PlannedLaunch] = []
    for replicate in range(options.launches):
        case_ids = list(range(len(cases)))
        order.shuffle(case_ids)
        for case_id in case_ids:
            launches.append(
                PlannedLaunch(
                    len(launches), replicate, (case_id,), device, 1, weights[case_id], needs_torch=False
                )
            )
    return Plan(
        profile=SERVE_PROFILE,
        profile_version=VERSION,
        seed=options.seed,
        replicates=options.launches,
        budget_s=options.budget_s,
        cases=tuple(cases),
        launches=tuple(launches),
        interpreter=(sys.executable,),
        loads=tuple(loads),
    )


def serving_case(
    profile: RequestProfile,
    words: str,
    unit: str,
    model: str,
    api: str,
    of_load: Sequence[tuple[str, Parameter]],
) -> Case:
    """The case of one load: equal for the same model, API, lengths and load, on whatever server."""
    body_hash = hashlib.sha256(profile.body.encode()).hexdigest()[:8]  # it may be private
    return program_case(
        f"serve:{profile.name} {words}",
        VERSION,
        is_whole=True,
        device_class=WHOLE_BOX,
        unit=unit,
        units=1.0,
        workload_class="inference",
        identity=(
            ("model", model),
            ("api", api),
            ("prompt_tokens", profile.prompt_tokens),
            ("shared_tokens", profile.shared_tokens),
            ("output_tokens", profile.output_tokens),
            ("prompts", profile.prompts),
            ("body", "none" if profile.body == "{}" else body_hash),
            *of_load,
        ),
    )


def shown_name(model: str) -> str:
    """A model's name for results: of a file without its directories, which may name people."""
    is_path = model.startswith(("/", "~", ".", "\\")) or model[1:3] in (":\\", ":/")
    return re.split(r"[/\\]", model.rstrip("/\\"))[-1] if is_path else model


def users_from(text: str) -> tuple[int, ...]:
    """Parse `1,2,4,8`; `none` for none. Raises GputuiError."""
    if text.strip() == "none":
        return ()
    hint = f"whole numbers from 1 to {MOST_USERS}, such as 1,2,4,8, or none"
    return _each_once(text, "--concurrency", hint, number_from("--concurrency", int, hint, (1, MOST_USERS)))


def rates_from(text: str) -> tuple[float, ...]:
    """Parse `2,4.5`: requests per second. Raises GputuiError."""
    hint = "requests per second, such as 2,4.5"
    return _each_once(text, "--rate", hint, number_from("--rate", float, hint, (0.001, MOST_RATE_PER_S)))


def _each_once(text: str, option: str, hint: str, parse: Callable[[str], N]) -> tuple[N, ...]:
    found = [parse(part) for part in text.split(",")]
    for number in found:
        if found.count(number) > 1:
            raise GputuiError(f"{option}: {number:g} is there twice", hint)
    return tuple(found)

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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

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
from gputui.model.units import counted, format_seconds
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
from gputui.worker.serving.prompts import LENGTHS, TOKENS_PER_WORD, FilePrompts, Prompts, prompts_in
from gputui.worker.serving.request import Address, Body, address_of, is_own
from gputui.worker.serving.server import ANSWER_TIMEOUT_S, ServerError, ServerIdentity, body_for, find_server

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
_SHOWN = 40
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
    api: str
    model: str
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
    profile = find_request_profile(options.profile)
    if options.shared_tokens is not None:
        profile = _with_shared(profile, options.shared_tokens)
    if options.prompts is not None:
        profile = _with_prompts(profile, options.prompts, options.api or "chat")
    profile = replace(profile, body=options.body)
    limits = profile.limits if options.limits is None else options.limits
    address = _address(options.url)
    key = key_from(options.key_name)
    if key and not address.is_tls and not is_own(address.host):
        raise GputuiError(
            f"the key in {options.key_name} would travel unencrypted to {address.host_header}",
            "use https://, or an ssh tunnel: ssh -L 8000:127.0.0.1:8000 HOST, then http://127.0.0.1:8000",
        )
    target = writable_target(options.db)
    is_here = is_own(address.host)
    machine = describe_machine(name=options.machine, hash_key=hash_key())
    if options.instance is not None and options.price is None:
        check_instance(options.instance, machine)
    # the list price of this box says nothing of another that answers
    has_price = is_here or options.price is not None or options.instance is not None
    price = price_of(options.price, options.instance, machine) if has_price else None
    deadline_s = time.monotonic() + FIND_S + min(options.budget_s, ANSWER_TIMEOUT_S)
    try:
        server = find_server(address, key, min(time.monotonic() + FIND_S, deadline_s))
        model = _model(options, server)
        body = _accepted_body(address, key, options, model, profile, server, deadline_s)
    except ServerError as error:
        raise MachineLacks(error.message, error.hint) from error
    if options.prompts is not None:
        _with_prompts(profile, options.prompts, body.api)  # the API that the server has may not take them
    _check_context(server, profile)
    notes = []
    if not body.ignores_eos:
        notes.append("the server does not know ignore_eos: answers may end before their wanted length")
    if server.models and model not in server.models:
        notes.append(
            f"the server does not list model {model!r}, but answers to it; it has {_models_text(server)}"
        )
    if not is_here:
        notes.append("the server is not on this box: what is stored of the machine is this one's")
    if lost := storage_warning(target, machine.layers):
        notes.append(lost)
    plan = _plan(options, profile, limits, body)
    _check_budget(plan, profile, _alone_s(address, key, profile, body, options.prompts, deadline_s))
    runtime = Runtime.without_torch(Missing("a load on a server asks no interpreter"))
    return PreparedServe(
        Spec(new_run_id(), plan, runtime, options.label, price, options.machine, hash_key(), str(target)),
        target,
        server,
        body.api,
        model,
        replace(profile, limits=limits),
        is_here,
        tuple(notes),
    )


def _with_shared(profile: RequestProfile, tokens: int) -> RequestProfile:
    if not 0 <= tokens < profile.prompt_tokens:
        raise GputuiError(
            f"--shared-prefix {tokens}: prompts of {profile.name} have {profile.prompt_tokens} tokens",
            f"from 0 to {profile.prompt_tokens - 1}",
        )
    return replace(profile, shared_tokens=tokens)


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


def _address(url: str) -> Address:
    try:
        return address_of(url)
    except ValueError as error:
        raise GputuiError(
            f"the URL of the server: {error}", "such as http://127.0.0.1:8000 or https://api.example.com/v1"
        ) from error


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


def _model(options: ServeOptions, server: ServerIdentity) -> str:
    if options.model:
        return options.model
    if not server.models:
        raise GputuiError("the server lists no model", "name it: --model NAME")
    if len(server.models) > 1:
        raise GputuiError(
            f"the server has {len(server.models)} models", f"name one with --model: {_models_text(server)}"
        )
    return server.models[0]


def _accepted_body(
    address: Address,
    key: str,
    options: ServeOptions,
    model: str,
    profile: RequestProfile,
    server: ServerIdentity,
    deadline_s: float,
) -> Body:
    """The body that the server accepts, found with a short request; of the chat API if it has that.

    The error for a model that the server does not list names those that it does.
    """
    prompt = Prompts(PROBE_TOKENS, 0, os.urandom(8), TOKENS_PER_WORD).usual()
    first: ServerError | None = None
    for api in (options.api,) if options.api else ("chat", "completions"):
        try:
            body = Body(api, model, PROBE_TOKENS, extra=options.body)
            found, _ = body_for(address, key, body, prompt, deadline_s)
        except ServerError as error:
            first = first or error
            continue
        return replace(found, output_tokens=profile.output_tokens)
    assert first is not None
    if not server.models or model in server.models:
        raise first
    message = f"the server does not list model {model!r}, and {first.message}"
    raise ServerError(message, f"it has {_models_text(server)}") from first


def _models_text(server: ServerIdentity) -> str:
    return ", ".join(server.models[:6]) + (", ..." if len(server.models) > 6 else "")


def _alone_s(
    address: Address,
    key: str,
    profile: RequestProfile,
    body: Body,
    prompts: Path | None,
    deadline_s: float,
) -> float | None:
    """How long one request of the profile takes with nothing beside it, at least; None if it is not answered.

    Why it is not shows in the run, whose first answer says how many tokens a word has.
    """
    if prompts is None:
        prompt = Prompts(profile.prompt_tokens, 0, os.urandom(16), TOKENS_PER_WORD).usual()
    else:
        prompt = FilePrompts(prompts_in(prompts, body.api)[0], "").usual()
        body = replace(body, has_messages=body.api == "chat")
    begun_s = time.monotonic()
    try:
        body_for(address, key, body, prompt, deadline_s)
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


def _check_context(server: ServerIdentity, profile: RequestProfile) -> None:
    longest = 1 + LENGTHS if profile.prompts == RANDOM_WORDS else 1.0
    needed = math.ceil(profile.prompt_tokens * longest) + profile.output_tokens
    if server.context_tokens is not None and needed > server.context_tokens:
        raise GputuiError(
            f"profile {profile.name} needs a context of {needed} tokens,"
            f" the server has {server.context_tokens}",
            "start the server with a larger context, or choose a shorter profile: see docs/serving.md",
        )


def _plan(options: ServeOptions, profile: RequestProfile, limits: Limits, body: Body) -> Plan:
    cases: list[PlannedCase] = []
    loads: list[PlannedLoad] = []
    weights: list[float] = []

    def add(kind: str, words: str, unit: str, weight: float, users: int = 0, rate: float = 0.0) -> None:
        of_load: list[tuple[str, Parameter]] = [("load", kind)]
        if kind == "closed":
            of_load.append(("users", users))
        elif kind == "open":
            of_load.append(("rate_per_s", rate))
        else:
            of_load.append(("attained_share", options.attained_share))
            of_load += [(f"limit_{name}_s", limit) for name, limit in limits.parts if limit is not None]
        case = serving_case(profile, words, unit, options.name or shown_name(body.model), body.api, of_load)
        case_id = len(cases)
        cases.append(PlannedCase(case_id, case, None, ""))
        weights.append(weight)
        loads.append(
            PlannedLoad(
                case_id=case_id,
                url=options.url,
                api=body.api,
                model=body.model,
                key_name=options.key_name,
                kind=kind,
                users=users,
                rate_per_s=rate,
                prompt_tokens=profile.prompt_tokens,
                shared_tokens=profile.shared_tokens,
                output_tokens=profile.output_tokens,
                limit_name=body.limit_name,
                ignores_eos=body.ignores_eos,
                asks_usage=body.asks_usage,
                ttft_s=limits.ttft_s,
                tpot_s=limits.tpot_s,
                e2e_s=limits.e2e_s,
                attained_share=options.attained_share,
                extra=options.body,
                prompts_path=str(options.prompts.resolve()) if options.prompts else "",
            )
        )

    for users in options.users:
        add("closed", f"{users} user{'' if users == 1 else 's'}", "tok", 1.0, users=users)
    for rate in options.rates_per_s:
        add("open", f"{rate:g} req/s", "tok", 2.0, rate=rate)
    if limits:
        add("search", "limit", "req", SEARCH_WEIGHT)
    if not cases:
        raise GputuiError(
            "there is nothing to measure: no users, no rates and no limits",
            "leave --concurrency or --slo out, or name a --rate",
        )
    return Plan(
        profile=SERVE_PROFILE,
        profile_version=VERSION,
        seed=options.seed,
        replicates=options.launches,
        budget_s=options.budget_s,
        cases=tuple(cases),
        launches=_launches(weights, options),
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
            ("body", "none" if profile.body == "{}" else hash_of(profile.body)),
            *of_load,
        ),
    )


def hash_of(text: str) -> str:
    """A few digits in place of a text that may be private."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def shown_name(model: str) -> str:
    """A model's name for results: of a file without its directories, which may name people."""
    is_path = model.startswith(("/", "~", ".", "\\")) or model[1:3] in (":\\", ":/")
    return re.split(r"[/\\]", model.rstrip("/\\"))[-1] if is_path else model


def _launches(weights: Sequence[float], options: ServeOptions) -> tuple[PlannedLaunch, ...]:
    """Every load once per replicate, in an order that differs between replicates."""
    order = random.Random(options.seed)
    device = PlannedDevice(WHOLE_BOX, "", "", "", "")
    launches: list[PlannedLaunch] = []
    for replicate in range(options.launches):
        case_ids = list(range(len(weights)))
        order.shuffle(case_ids)
        for case_id in case_ids:
            launches.append(
                PlannedLaunch(
                    len(launches), replicate, (case_id,), device, 1, weights[case_id], needs_torch=False
                )
            )
    return tuple(launches)


def users_from(text: str) -> tuple[int, ...]:
    """Parse `1,2,4,8`; `none` for none. Raises GputuiError."""
    if text.strip() == "none":
        return ()
    hint = f"whole numbers from 1 to {MOST_USERS}, such as 1,2,4,8, or none"
    found: list[int] = []
    for part in text.split(","):
        if not part.strip().isdecimal() or not 1 <= int(part) <= MOST_USERS:
            raise GputuiError(f"--concurrency: {part[:_SHOWN]!r} is not a number of users", hint)
        if int(part) in found:
            raise GputuiError(f"--concurrency: {part.strip()} is there twice", hint)
        found.append(int(part))
    return tuple(found)


def rates_from(text: str) -> tuple[float, ...]:
    """Parse `2,4.5`: requests per second. Raises GputuiError."""
    hint = "requests per second, such as 2,4.5"
    found: list[float] = []
    for part in text.split(","):
        try:
            rate = float(part)
        except ValueError:
            raise GputuiError(f"--rate: {part[:_SHOWN]!r} is not a number", hint) from None
        if not 0.001 <= rate <= MOST_RATE_PER_S:
            raise GputuiError(f"--rate: {part[:_SHOWN]!r} is not in the range 0.001 to 10000", hint)
        if rate in found:
            raise GputuiError(f"--rate: {part[:_SHOWN]!r} is there twice", hint)
        found.append(rate)
    return tuple(found)

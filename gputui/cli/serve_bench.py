"""`gputui serve-bench`: load on an LLM server."""

from __future__ import annotations

from pathlib import Path
from typing import Any  # Any: what click passes on

import click

from gputui.cli.options import db_option, detach_option, json_results_option, machine_option, notify_option
from gputui.cli.output import report_missing_home, report_recovered, say
from gputui.cli.watching import detached, measured
from gputui.model.units import counted, format_percent, format_whole_seconds, number_from
from gputui.services.runs.options import budget_from, launches_from, price_from
from gputui.services.serving.plan import (
    DEFAULT_BUDGET_S,
    DEFAULT_LAUNCHES,
    DEFAULT_USERS,
    PreparedServe,
    ServeOptions,
    body_from,
    prepare_serve,
    rates_from,
    users_from,
)
from gputui.services.serving.profiles import DEFAULT_ATTAINED_SHARE, limits_from
from gputui.services.serving.text import API_PRICE_HELP, api_price_from, engine_words

DEFINITIONS = """
\b
TTFT  time to first token: first event with output - when the request was due
TPOT  time per output token: (last - first event with output) / (N - 1)
E2E   last event with output - when the request was due
N     output tokens, as the server counts them (usage)
      A request is due when its arrival was scheduled (--rate, --slo), or when
      its user sent it (--concurrency).
good  a request that meets every limit of --slo at once
limit the rate of requests at which 90 % of them (--attain) are good

\b
Examples:
  gputui serve-bench http://127.0.0.1:8000 --db a.db
  gputui serve-bench http://127.0.0.1:8000 --slo ttft=500ms,tpot=50ms
  gputui serve-bench https://api.example.com/v1 --model M --api-key-env KEY
"""

COMMON = (
    "--db", "--model", "--concurrency", "--rate", "--slo", "--profile", "--budget", "--price",
    "--label", "--api-key-env", "--api-price",
)  # fmt: skip


@click.command(epilog=DEFINITIONS)
@click.argument("url")
@click.option(
    "--model", default="", metavar="M", help="The server's name for the model; needed if it has several."
)
@click.option(
    "--name", default="", metavar="NAME", help="The model's name in results; runs with the same name pair."
)
@click.option(
    "--profile", default="chat", show_default=True, metavar="P", help="chat, rag, code, or a .toml file."
)
@click.option("--api", type=click.Choice(["chat", "completions"]), help="[chat if the server has it]")
@click.option(
    "--concurrency",
    "users",
    type=users_from,
    metavar="N,N",
    help=f"Numbers of concurrent users, or none.  [{','.join(map(str, DEFAULT_USERS))}]",
)
@click.option(
    "--rate", "rates_per_s", type=rates_from, metavar="R,R", help="Also these request rates, per second."
)
@click.option(
    "--slo",
    "limits",
    type=limits_from,
    metavar="LIMITS",
    help="ttft=500ms,tpot=50ms,e2e=10s, or none.  [the profile's]",
)
@click.option(
    "--attain",
    "attained_share",
    type=number_from("--attain", float, "a share, such as 0.9 for 90 %, the default", (0.5, 0.99)),
    default=f"{DEFAULT_ATTAINED_SHARE:g}",
    show_default=True,
    metavar="SHARE",
    help="Share of requests that must meet the limits.",
)
@click.option(
    "--shared-prefix",
    "shared_tokens",
    type=click.IntRange(min=0),
    metavar="TOKENS",
    help="Start all prompts with the same tokens.  [0]",
)
@click.option(
    "--prompts",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Send the prompts of a JSONL file, not random words.",
)
@click.option(
    "--body", type=body_from, metavar="JSON", help="Add to each request, such as '{\"temperature\": 0}'."
)
@click.option(
    "--budget",
    "budget_s",
    type=budget_from,
    default=f"{DEFAULT_BUDGET_S:g}",
    show_default=True,
    metavar="S",
    help="Time limit in seconds.",
)
@click.option(
    "--launches",
    type=launches_from,
    default=str(DEFAULT_LAUNCHES),
    show_default=True,
    metavar="N",
    help="Repetitions of each load.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**31 - 1),
    default=0,
    metavar="N",
    help="Seed of arrivals and order.  [0]",
)
@click.option(
    "--api-key-env",
    "key_name",
    default="",
    metavar="NAME",
    help="Environment variable that holds the API key.",
)
@db_option
@click.option("--label", default="", help="A name for this run.")
@click.option("--price", type=price_from, metavar="USD_PER_H", help="What the whole box costs per hour.")
@click.option("--instance", metavar="TYPE", help="Use the list price of this instance type.")
@machine_option
@click.option("--api-price", type=api_price_from, metavar="IN,OUT", help=API_PRICE_HELP)
@detach_option
@notify_option
@click.option("-v", "--verbose", is_flag=True, help="Add notes, and why loads were not measured.")
@json_results_option
def command(
    api_price: tuple[float, float] | None,
    detach: bool,
    notify: bool,
    verbose: bool,
    as_json: bool,
    **stated: Any,
) -> int:
    """Measure the OpenAI-compatible server at URL: speed by number of users, and the rate within limits.

    Prompts are random words in lengths that vary, so that no cache of earlier prompts helps, unless --prompts
    or --shared-prefix say so.
    """
    report_recovered()
    report_missing_home()
    options = ServeOptions(**{name: value for name, value in stated.items() if value is not None})
    prepared = prepare_serve(options)
    _announce(prepared, options.attained_share)
    specs = [prepared.spec]
    if detach:
        return detached(specs, as_json=as_json)
    return measured(
        specs,
        prepared.target,
        notifies=notify,
        as_json=as_json,
        is_verbose=verbose,
        api_price=api_price,
    )


def _announce(prepared: PreparedServe, attained_share: float) -> None:
    server, plan = prepared.server, prepared.spec.plan
    engine = engine_words(server.engine, server.version)
    context = "" if server.context_tokens is None else f", context {server.context_tokens}"
    slots = "" if server.slots is None else f", {counted(server.slots, 'slot')}"
    where = "here" if prepared.is_here else "elsewhere"
    say(f"{engine} {where}: {plan.loads[0].model}, {plan.loads[0].api}{context}{slots}")
    profile = prepared.profile
    shared = f", of which {profile.shared_tokens} are shared" if profile.shared_tokens else ""
    limits = f"; {format_percent(attained_share)} within {profile.limits.text}" if profile.limits else ""
    say(f"{profile.name}: {profile.prompt_tokens} tokens in{shared}, {profile.output_tokens} out{limits}")
    say(
        f"{counted(len(plan.cases), 'load')} in {counted(len(plan.launches), 'launch')},"
        f" at most {format_whole_seconds(plan.budget_s)}; into {prepared.target}"
    )
    for note in prepared.notes:
        say(note)

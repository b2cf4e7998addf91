"""Computing what is missing, on whichever page misses it: what that costs, the button, and the bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from headlab.errors import HeadlabError
from headlab.methods import costs
from headlab.methods.costs import settings, spec_of
from headlab.methods.table import METHODS
from headlab.scores import HeadScores
from headlab.ui import jobs_forecast, jobs_gradient
from headlab.ui.jobs_do import start
from headlab.ui.jobs_follow import known_jobs, progress
from headlab.ui.jobs_words import duration, spelled
from headlab.ui.overview_coverage import command
from headlab.ui.presses import button
from headlab.ui.results import Found
from headlab.ui.shell import Choice, listing


def work_of(choice: Choice, languages: Sequence[str], like: HeadScores | None) -> dict[str, Any]:
    """The spec of a job that scores these languages; like: a result it is to stand beside."""
    if like is None:
        options, seed, ablation = {}, 0, "zero"
    else:
        options = {name: v for name, v in settings(like).items() if name in METHODS[choice.method].options}
        seed, ablation = spec_of(like, "seed") or 0, spec_of(like, "ablation") or "zero"
    about = {"model": choice.model, "task": choice.task, "method": choice.method}
    return {**about, "languages": list(languages), "options": options, "seed": seed, "ablation": ablation}


def panel(choice: Choice, results: Found, what_for: str) -> None:
    """On a page that is about something else: what it lacks, what the scores are for, and the offer; else nothing."""
    if not results.missing:
        return
    with st.container(border=True, key="offer"):
        st.markdown(f"No {choice.method} scores of {spelled(results.missing)} are cached. {what_for}")
        offer(choice, results.missing, results.first, folded=True)
        progress()


def offer(choice: Choice, missing: Sequence[str], like: HeadScores | None = None, *, folded: bool = False) -> None:
    """The button that computes the missing languages, what that costs, and the command that does the same.

    like: a result that they are to stand beside.  Languages of jobs under way are left out.  folded:
    the command in a drawer.
    """
    if sentence := refusal(choice):
        st.warning(sentence)
        return
    busy = {language for job in known_jobs(choice) for language in job["params"]["languages"]}
    missing = [language for language in missing if language not in busy]
    if not missing:
        return
    spec = work_of(choice, missing, like)
    if jobs_gradient.fits(spec):
        jobs_gradient.draw(spec, f"Compute {_many(missing)}")
    else:
        button(f"Compute {_many(missing)}", kind="primary", key="compute", on_press=start, args=("score", spec))
    jobs_forecast.draw("score", spec, _kind_of_cost(choice), _most(choice, spec))
    with st.expander("The same from a terminal") if folded else st.container():
        st.caption("Or from a terminal; it can be interrupted, and the same command resumes it:")
        st.code(command(spec), language="bash", wrap_lines=True)


def _many(missing: Sequence[str]) -> str:
    return f"the {len(missing)} missing languages" if len(missing) > 1 else f"the missing language ({missing[0]})"


def _heads(model: str) -> int | None:
    """Heads of a model, as far as its cached results tell."""
    own = (r.scores.grid.size for r in listing().results if spec_of(r.scores, "model", "name") == model)
    return next(own, None)


def refusal(choice: Choice) -> str:
    """Why the method cannot be run on this model, or empty; a model without results is not known here."""
    heads = _heads(choice.model)
    try:
        if heads is not None:
            costs.refuse(METHODS[choice.method], heads)
    except HeadlabError as error:
        return f"{error}."
    return ""


def price(choice: Choice, spec: Mapping[str, Any]) -> str:
    """What a score job costs, in words, as far as that is known in a moment."""
    return f"{_kind_of_cost(choice)} {jobs_forecast.at_once('score', spec, _most(choice, spec))}".rstrip()


def _kind_of_cost(choice: Choice) -> str:
    method = METHODS[choice.method]
    text = costs.caution(method.key)
    return (f"Caution: {text}. " if text else "") + f"Cost: {method.cost}."


def _most(choice: Choice, spec: Mapping[str, Any]) -> str:
    """Where the worker has no forecast: the most that it can be, at the pace of the cached results."""
    method, heads = METHODS[choice.method], _heads(choice.model)
    if heads is None:
        return ""
    forwards = costs.most_forwards(method, method.resolve(spec["options"]), heads, 512)
    pace = costs.pace([r.scores for r in listing().results], choice.model, choice.task)
    if not forwards or pace is None:
        return ""
    each = "each language" if len(spec["languages"]) > 1 else "the language"
    time = duration(forwards * pace)
    return f"Here at most {forwards:,} forwards for {each}, {time} at the pace of the results cached here."

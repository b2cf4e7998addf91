"""The offer to compute missing scores, on any page: the cost, the button, and the progress bars."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

import streamlit as st

from headlab.jobs.score import ScoreJob
from headlab.methods import costs
from headlab.methods.costs import settings, spec_of
from headlab.methods.table import LIVE_METHOD, METHODS
from headlab.report.commands import shell_lines
from headlab.scores import HeadScores
from headlab.tables import duration
from headlab.ui import job_actions
from headlab.ui.job_actions import ask, asked_for, heads_of, known_jobs, progress, refusal, start
from headlab.ui.job_format import spelled
from headlab.ui.names import counted, language_title, plain
from headlab.ui.presses import button, follow
from headlab.ui.results import Found
from headlab.ui.shell import Choice, Latest, guarded, listing
from headlab.worker.client import Client

# Gradient scores as live requests: they take seconds per language and take priority over jobs.

LIVE = "_gradient"
SECONDS = 0.5
ASKED = ("form", "normalise")  # the options that a live request supports


def fits(spec: Mapping[str, Any]) -> bool:
    """Whether a live request gives exactly what this job would."""
    if spec["method"] != LIVE_METHOD or (spec.get("seed"), spec.get("ablation")) != (0, "zero"):
        return False
    usual = {name: option.default for name, option in METHODS[LIVE_METHOD].options.items()}
    return all(value == usual[name] for name, value in spec["options"].items() if name not in ASKED)


def ask_all(worker: Client, spec: Mapping[str, Any]) -> Generator[str]:
    """Request each language in turn; yields its name before each, and an empty string at the end."""
    options = {name: value for name, value in spec["options"].items() if name in ASKED}
    for language in spec["languages"]:
        yield language
        worker.gradient(
            spec["model"], spec["task"], language, label_map=spec.get("label_map"), **options
        )
    yield ""


def draw(spec: Mapping[str, Any], label: str) -> None:
    """The button, or the progress of the scores it requested."""
    held: tuple[Mapping[str, Any], Latest[str]] | None = st.session_state.get(LIVE)
    if held is None or not _same(held[0], spec):
        # Starting this request ends another choice's.
        button(label, kind="primary", key="compute", on_press=_begin, args=(spec,))
        return
    with st.container(horizontal=True, vertical_alignment="center", key="gradient-bar"):
        with st.container():
            follow(_look, SECONDS)(held[0]["languages"], held[1])
        button("Stop", key="gradient-stop", on_press=_stop, help="Finished work is kept.")


def _same(begun: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    """Whether a running request is for this choice; languages it has finished are no longer missing."""
    return _about(begun) == _about(spec) and set(spec["languages"]) <= set(begun["languages"])


def _about(spec: Mapping[str, Any]) -> dict[str, Any]:
    """All but the languages, with every option filled in, as in the spec once one language is done."""
    options = METHODS[spec["method"]].resolve(spec["options"])
    return {name: value for name, value in spec.items() if name != "languages"} | {
        "options": options
    }


def _begin(spec: Mapping[str, Any]) -> None:
    def do(worker: Client) -> None:
        _stop()
        st.session_state[LIVE] = (spec, Latest(lambda: ask_all(worker, spec)))

    ask(do)


def _stop() -> None:
    _, live = st.session_state.pop(LIVE, (None, None))
    if live is not None:
        live.stop()


def _look(languages: Sequence[str], live: Latest[str]) -> None:
    with guarded():
        if live.done:
            if live.error is not None:
                asked_for().said = str(live.error)
            st.session_state.pop(LIVE, None)
            st.rerun()
        at = languages[0] if live.value is None else live.value or languages[-1]
        done = languages.index(at)
        st.progress(
            done / len(languages), f"{plain(language_title(at))}, {done} of {len(languages)} done"
        )


def work_of(choice: Choice, languages: Sequence[str], like: HeadScores | None) -> dict[str, Any]:
    """The spec of a job that scores these languages. like: a result whose settings it copies."""
    if like is None:
        options, seed, ablation = {}, 0, "zero"
    else:
        options = {
            name: v for name, v in settings(like).items() if name in METHODS[choice.method].options
        }
        seed, ablation = spec_of(like, "seed") or 0, spec_of(like, "ablation") or "zero"
    return {
        **choice.about,
        "method": choice.method,
        "languages": list(languages),
        "options": options,
        "seed": seed,
        "ablation": ablation,
    }


def panel(choice: Choice, results: Found, what_for: str) -> None:
    """On other pages: which scores are missing, what they are for, and the offer; nothing if none are missing."""
    if not results.missing:
        return
    with st.container(border=True, key="offer"):
        st.markdown(
            f"No {choice.method} scores of {plain(spelled(results.missing))} are cached. {what_for}"
        )
        offer(choice, results.missing, results.like, folded=True)
        progress()


def offer(
    choice: Choice, missing: Sequence[str], like: HeadScores | None = None, *, folded: bool = False
) -> None:
    """The button that computes the missing languages, its cost, and the equivalent command.

    like: as in `work_of`.  Languages of live jobs are left out.  folded: the command is in an expander.
    """
    if skipped := len(listing(HeadScores).problems):
        st.caption(f"Skipped in the cache: {counted(skipped, 'folder')}; the Jobs page says why.")
    if sentence := refusal(choice):
        st.warning(plain(sentence))
        return
    busy = {language for job in known_jobs(choice) for language in job["params"]["languages"]}
    missing = [language for language in missing if language not in busy]
    if not missing:
        return
    spec = work_of(choice, missing, like)
    if fits(spec):
        draw(spec, f"Compute {_many(missing)}")
    else:
        button(
            f"Compute {_many(missing)}",
            kind="primary",
            key="compute",
            on_press=start,
            args=(ScoreJob.model_construct(**spec),),
        )
    job_actions.draw(ScoreJob.model_construct(**spec), _kind_of_cost(choice), _most(choice, spec))
    with st.expander("The same from a terminal") if folded else st.container():
        st.caption("Or from a terminal; it can be interrupted, and the same command resumes it:")
        st.code(shell_lines("score", spec), language="bash", wrap_lines=True)


def _many(missing: Sequence[str]) -> str:
    return (
        f"the {len(missing)} missing languages"
        if len(missing) > 1
        else f"the missing language ({missing[0]})"
    )


def price(choice: Choice, spec: Mapping[str, Any]) -> str:
    """The cost of a score job in words, with the forecast if it arrives at once."""
    return f"{_kind_of_cost(choice)} {job_actions.at_once(ScoreJob.model_construct(**spec), _most(choice, spec))}".rstrip()


def _kind_of_cost(choice: Choice) -> str:
    method = METHODS[choice.method]
    text = costs.caution(method.key)
    return (f"Caution: {text}. " if text else "") + f"Cost: {method.costs.words}."


def _most(choice: Choice, spec: Mapping[str, Any]) -> str:
    """If the worker has no forecast: the maximum cost, at the pace of the cached results."""
    method, heads = METHODS[choice.method], heads_of(choice.model)
    if heads is None:
        return ""
    forwards = method.max_forwards(method.resolve(spec["options"]), heads, 512)
    pace = costs.pace([r.record for r in listing(HeadScores).results], choice.model, choice.task)
    if not forwards or pace is None:
        return ""
    each = "each language" if len(spec["languages"]) > 1 else "the language"
    time = duration(forwards * pace)
    return f"Here at most {forwards:,} forwards for {each}, {time} at the pace of the results cached here."

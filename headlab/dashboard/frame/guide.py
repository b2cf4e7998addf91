"""What each page answers, how to read it, and a tour of them."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from headlab.dashboard.names import PAGES, page_link
from headlab.dashboard.widgets import PageState, button


@dataclass
class Tour(PageState):
    """The tour of pages in one session.

    Attributes:
        is_taken: Whether it is being taken.
    """

    key = "_tour"
    is_taken: bool = False


@dataclass(frozen=True)
class Guide:
    """What explains a page.

    Attributes:
        answers: The page's question, in a sentence.
        reading: How to read it.
        step: Of the tour, or empty.
        below: Whether its question stands below the page, not above it.
    """

    answers: str
    reading: str
    step: str = ""
    below: bool = False


GUIDES = {
    "overview": Guide(
        "Which attention heads help, do nothing or do harm, in each language.",
        """
- A map is one language: rows are layers, columns are heads, both counted from 0. The colour is a head's contribution:
  blue helps, orange harms, pale does little either way.
- A hollow + or − marks a head whose own interval excludes 0. Of many heads some get one by chance. A filled mark still
  holds after a correction for all heads shown. Trust a filled mark; test a hollow one on new examples.
- What was found is made from the stored results by fixed rules. *Details* names the languages, method and examples that
  each finding is of. A report on the chosen languages is preferred.
- **Beside another result** compares one language's map with that of another method, estimand, task or checkpoint.
""",
        "These maps show which heads the model needs in each language. The findings say what stands out.",
    ),
    "heads": Guide(
        "What one head contributes in every language, and how certain that is.",
        """
- Click a head in any map: the card shows its value in each language as a dot with its interval. An interval that
  crosses the dotted line at 0 leaves the head's sign open.
- Values are measured on sampled dev examples. Prune shows what switching the head off does on other examples: choose
  test there.
- One colour scale for all maps compares languages; each map's own scale shows the order within a language.
- **Beside another result** compares the chosen language's map with the mean of the other languages (what is specific to
  it), or with that of another method, estimand, language, task or checkpoint. The interval of a difference holds
  whenever both results' intervals do.
""",
        "Click any head. Its card shows what it contributes in each language, and links to what it attends to.",
    ),
    "head": Guide(
        "All that is known of one head, what the model says without it, and which masks are without it.",
        """
- The head stays chosen on every page. Click another one in the map, or pick it by its number.
- Values come from every stored result of this model: each method measures something else, so compare their signs and
  ranks, not their sizes.
- A role says where a head looks; *What the model says without it* says whether the model needs that.
- A head picked because its value is extreme looks more extreme than it is. Prune shows it on new examples: choose test there.
""",
    ),
    "scatter": Guide(
        "All heads by any two of what is known of them: values, ranks, attention, roles.",
        """
- A point is a head. Draw around some with the mouse: they stand out, and stay chosen while you look at other measures.
  A second area replaces them, adds to them, or takes heads away. *Choose by two ranges* does the same by keyboard.
- A value is what a head contributes; its interval is shown beside the pointer. The first measures are of the method and
  task of the sidebar; below them are other methods, tasks and models with the same heads.
- ρ is Spearman's rank correlation. Both measures are noisy, so it understates how alike they are.
- Heads chosen because they stand out here look more extreme than they are. Test them: switch them off, and look at test.
""",
    ),
    "pairs": Guide(
        "Which heads stand in for each other, which need each other, and what removing several of them costs.",
        """
- Two heads stand in for each other if each is worth less where the other is present: their interaction is below 0.
  Above 0 they need each other.
- An interaction is a mean over random sets of the other heads. A solid line's own interval excludes 0; among many
  pairs some do by chance, so look at the last p of the table, which is corrected for all of them.
- A set is foreseen by what each of its heads costs alone, less the interactions of its pairs. Where it costs more than
  the heads cost alone, they had stood in for each other.
""",
    ),
    "languages": Guide(
        "Which languages rank the heads alike, which heads they share, and where they differ.",
        """
- ρ is Spearman's rank correlation over all heads: 1 for the same ranking, 0 for unrelated ones.
- Scores are measured with noise, which pulls ρ towards 0. The ceiling is what two equal rankings would show with this
  noise: compare ρ with the ceiling rather than with 1.
- In the tree, languages that rank the heads alike join early; the number where they join is the share of resamples in
  which these languages form a cluster.
""",
    ),
    "roles": Guide(
        "What heads do, after Voita et al. (ACL 2019): keep to an offset, follow a relation of syntax, find the rare "
        "word.",
        """
- A head has a role if it does what the role says on a large share of the tokens, and more often than chance or the best
  fixed offset would. It may have several roles, or none.
- A role says where a head looks. Whether the model needs the head is another question: click a role in the legend, and
  switch its heads off.
- **Beside another result** compares two reports: which roles a head has in one of them only, and how heads attend.
""",
    ),
    "gates": Guide(
        "Which heads stay when gates learn to close, after Voita et al. (ACL 2019): each head's gate is open with a "
        "probability, and λ is the price of an open one.",
        """
- A larger λ leaves fewer heads. The curve shows what that costs, and how other ways to choose as many heads do.
- **Beside another result** compares two runs: how likely each gate is open at the end, and which heads both keep.
- The model may be trained jointly with the gates, so accuracies here can be of another model than on Prune.
""",
    ),
    "prune": Guide(
        "What the model loses, or gains, when heads or other players are switched off, against the unpruned model on the "
        "same examples.",
        """
- Both models answer the same examples, so look at the difference: its interval is narrower than the two
  accuracies alone would suggest. A pale accuracy with “so far” below it rests on the first examples only and still
  moves; a difference in blue or orange is final, and its interval excludes 0.
- Choose heads on dev, then look at test once: a mask that was chosen on test looks better there than it is.
- In the grid a cross is a head that is off. A mask saves no computation until the heads are removed from the weights.
""",
        "Click heads to switch them off, or take the method's suggestion, and watch the accuracy. Export the mask, or "
        "write the model without these heads, when you are done.",
        below=True,
    ),
    "masks": Guide(
        "How two masks differ: of the Prune page, files, the scores of each language, or learned gates.",
        """
- The difference map shows which heads only one of them removes. The Jaccard index is the share of the removed heads
  that both remove: 1 for the same mask.
- Two masks that keep equally many heads can be compared by their accuracies; the rule *The k lowest* makes such masks.
""",
    ),
    "experiments": Guide(
        "What a paper's analysis says of the model, task and languages of the sidebar: start it, read it, download it.",
        """
- The figures are drawn from the tables below them, which can be downloaded as CSV.
- The notes below a report say what its figures are based on, and what they do not show.
- p (Holm) is corrected for all rows that are tested together.
""",
    ),
    "attention": Guide(
        "What chosen heads look at, token by token, in a sentence of the task or one of your own, and how the model "
        "answers without them.",
        """
- A line, or a shade, is the weight that one token gives to another; the weights of a token add up to 1,
  unless the sentence was cut.
- A large weight is no proof of importance: many heads attend to the special tokens when they have nothing to do. The
  caption below the picture says what share of the weight they get.
- Below the picture are the model's answers for each sentence with the chosen heads on and with their output set to 0.
  One sentence is not evidence: the Prune page counts over all examples. Of a language model these are its
  probabilities of each next token.
- "All heads" shows every head's map of one sentence in small; its frame has the colour and sign of the head's score.
""",
        "This is what a head looks at. Try a sentence of your own.",
    ),
    "jobs": Guide(
        "What the worker is computing, what is waiting, and what a new job will cost.",
        """
- One job runs at a time on a device. Results are stored as they are computed: a job that was cancelled, or whose worker
  was killed, resumes where it stopped.
- A forecast is the number of forward passes times the pace that was measured on this machine.
""",
        "Other methods, languages and models are computed here, or with the same command in a terminal. That was the "
        "tour.",
    ),
    "own": Guide(
        "A model of your own, checked before it is loaded, and a task made from your own files.",
        """
- ✓ passed, ✗ failed, ○ known only once the model is loaded. A model with ✗ cannot be used until that is fixed; if
  the labels do not match, choose another task, or give a label map in the sidebar.
- Every row of the files is read as the task will read it. Errors name the file, the line and the column.
- A saved task is a folder of its own below the cache: the files and a declaration. No saved task is overwritten.
- Heads are chosen on dev, and test is for reporting. Where rows are split, rows that belong together stay together.
""",
    ),
}


def draw_guide_above(name: str) -> None:
    """What stands above a page: its question and the tour, or the tour alone."""
    guide = GUIDES[name]
    if not guide.below:
        _draw_question(name)
    if Tour.of_session().is_taken:
        _draw_tour_step(name, guide.step)


def draw_guide_below(name: str) -> None:
    """What stands below a page: how to read it, and its question unless that stands above."""
    if GUIDES[name].below:
        _draw_question(name)
    _draw_reading_fold(name)


def _draw_question(name: str) -> None:
    """A page's question."""
    st.markdown(GUIDES[name].answers)


def _draw_reading_fold(name: str) -> None:
    """The fold on how to read a page, with the way into the tour."""
    guide = GUIDES[name]
    with st.expander("How to read this", icon=":material/help:"):
        st.markdown(guide.reading)
        if not Tour.of_session().is_taken:
            button(
                "Take the tour",
                key="tour-take",
                on_press=_set_tour,
                args=(True,),
                icon="route",
                help="Five pages, two minutes",
            )


def _draw_tour_step(name: str, step_text: str) -> None:
    """One step of the tour, with the way on and out of it.

    On a page without a step, the way to the first.
    """
    stops = [page for page, guide in GUIDES.items() if guide.step]
    stop_index = stops.index(name) if name in stops else -1
    with st.container(border=True, key="tour"):
        heading = "**Tour.** It begins on the overview."
        if step_text:
            heading = f"**Tour, {stop_index + 1} of {len(stops)}.** {step_text}"
        st.markdown(heading)
        with st.container(horizontal=True, gap="medium", vertical_alignment="center"):
            for next_stop in stops[stop_index + 1 : stop_index + 2]:
                next_title, _ = PAGES[next_stop]
                page_link(next_stop, f"Next: {next_title}", icon=":material/arrow_forward:")
            button("End the tour", key="tour-end", on_press=_set_tour, args=(False,), icon="close")


def _set_tour(is_taken: bool) -> None:
    Tour.of_session().is_taken = is_taken

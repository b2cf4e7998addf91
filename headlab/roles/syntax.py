"""Which word should look at which, by a gold tree, and how far a fixed offset would get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from headlab.records import Bools
from headlab.roles.table import RELATIONS, TO_DEPENDENT, TO_GOVERNOR, syntactic
from headlab.tasks.treebank import Tree

Wanted = Mapping[int, frozenset[int]]


def wanted(tree: Tree, whole: Bools, causal: bool) -> dict[str, Wanted]:
    """{role: {word that looks: words it should look at}} of every syntactic role, only what can be asked.

    whole: bool [word], whether the model is given all of the word.  causal: words see only those before them, so a word
    is asked only about what stands before it.
    """
    out: dict[str, dict[int, set[int]]] = {}
    for word, (governor, relation) in enumerate(zip(tree.governors, tree.relations, strict=True)):
        if governor < 0 or relation not in RELATIONS or not (whole[word] and whole[governor]):
            continue
        for direction, looks, target in ((TO_GOVERNOR, word, governor), (TO_DEPENDENT, governor, word)):
            if target < looks or not causal:
                out.setdefault(syntactic(relation, direction), {}).setdefault(looks, set()).add(target)
    return {role: {word: frozenset(found) for word, found in asked.items()} for role, asked in out.items()}


def best_offsets(asked: Iterable[Mapping[str, Wanted]]) -> dict[str, int]:
    """{role: the offset that most words would be right with}; of several, the nearest, before rather than after."""
    counts: dict[str, Counter[int]] = {}
    for roles in asked:
        for role, words in roles.items():
            found = counts.setdefault(role, Counter())
            found.update(target - word for word, targets in words.items() for target in targets)
    return {role: min(found, key=lambda o: (-found[o], abs(o), o)) for role, found in counts.items()}

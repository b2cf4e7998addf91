"""Masks and scores through a folder: there and back, beside others, and when it is damaged."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from support.cached_scores import GRID
from support.expected_errors import raises
from support.shared_masks import HUB_MODEL, SHARED_GRID, kept_scores, mask_file, shared_mask

from headlab.core import HeadlabError
from headlab.masks import load_mask
from headlab.report.build import write_report
from headlab.results import HeadScores, Store
from headlab.sharing import place_of, pull, push
from headlab.sharing.card import MARK, EarlierCard
from headlab.sharing.folder import SharedFolder
from headlab.sharing.layout import SharedFiles
from headlab.sharing.pull import FittingModel, chosen_keys, chosen_mask, files_of


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


@pytest.fixture
def place(tmp_path: Path) -> SharedFolder:
    return SharedFolder(tmp_path / "shared", "./shared")


def files_in(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def pushed_scores(place: SharedFolder, store: Store, language: str = "de") -> str:
    """The key of scores that were pushed."""
    key = kept_scores(store, language).spec.key
    push([key[:10]], place, store)
    return key


def test_a_mask_and_scores_come_back_to_the_byte(
    tmp_path: Path, store: Store, place: SharedFolder
) -> None:
    key = kept_scores(store).spec.key
    path = mask_file(tmp_path)
    pushed = push([str(path), key[:8]], place, store)
    assert pushed.sent[-1] == "README.md"
    assert set(files_in(place.root)) == {
        "README.md",
        "masks/m.json",
        f"scores/{key}/spec.json",
        f"scores/{key}/result.npz",
    }
    other_store = Store(tmp_path / "other")
    out = tmp_path / "out" / "m.json"
    pulled = pull(place, mask_name="m", out=out, keys=[key], store=other_store)
    assert (pulled.taken, pulled.known) == ((key,), ())
    assert out.read_bytes() == path.read_bytes()
    for name in ("spec.json", "result.npz"):
        copy = other_store.root / key / name
        assert copy.read_bytes() == (store.root / key / name).read_bytes()
    (result,) = other_store.scan().results
    assert result.key == key


def test_scores_that_are_there_already_stay(
    tmp_path: Path, store: Store, place: SharedFolder
) -> None:
    key = pushed_scores(place, store)
    (place.root / "scores" / key / "result.npz").write_bytes(b"damaged since")
    assert pull(place, keys=[key], store=store).known == (key,)
    assert store.scan().problems == ()


def test_a_second_push_adds_replaces_and_keeps_what_is_there(
    tmp_path: Path, store: Store, place: SharedFolder
) -> None:
    push(
        [str(mask_file(tmp_path, "a")), str(mask_file(tmp_path, "b"))], place, store, license="mit"
    )
    (place.root / "notes.txt").write_text("mine", encoding="utf-8")
    before = files_in(place.root)
    push([str(mask_file(tmp_path, "b", rule="by hand")), pushed_scores(place, store)], place, store)
    after = files_in(place.root)
    assert {name for name in before if after[name] != before[name]} == {"README.md", "masks/b.json"}
    card = after["README.md"].decode()
    assert "## Mask a" in card
    assert "rule `by hand`" in card
    assert "## Scores" in card
    assert ModelCard(card).data.to_dict()["license"] == "mit"


def test_the_card_holds_the_facts(tmp_path: Path, store: Store, place: SharedFolder) -> None:
    key = pushed_scores(place, store)
    push([str(mask_file(tmp_path))], place, store, license="apache-2.0")
    text = (place.root / "README.md").read_text(encoding="utf-8")
    assert ModelCard(text).data.to_dict() == {
        "library_name": "headlab",
        "tags": ["headlab", "attention-heads", "pruning"],
        "base_model": ["owner/tiny-bert"],
        "language": ["th", "de"],
        "license": "apache-2.0",
    }
    for fact in (
        "only the weights",
        "`owner/tiny-bert`",
        HUB_MODEL["revision"],
        HUB_MODEL["fingerprint"],
        "2 of 5 switched off",
        "rule `bottom`, k `2`, method `shapley`, estimand `shapley-top50`",
        "`samples=",
        "on 512 examples of `dev`",
        "| test | `intents` | `th` | 1,000 | 61.2 [58.0, 64.0] | 60.5 | +0.7 [−0.2, +1.6] |",
        "headlab pull ./shared --mask m --out m.json",
        "headlab evaluate --model owner/tiny-bert --mask m.json --split test --task intents",
        "headlab prune --model owner/tiny-bert",
        "--rule bottom --k 2 --out m.json",
        key[:12],
        "headlab score --model owner/tiny-bert --task intents --languages de",
        "headlab pull ./shared --scores all",
    ):
        assert fact in text, fact


def test_a_card_has_no_licence_and_no_base_model_that_nobody_gave(
    tmp_path: Path, store: Store, place: SharedFolder
) -> None:
    path = tmp_path / "m.json"
    value = shared_mask().to_json() | {"model": {"name": "e5-small-intents", "fingerprint": None}}
    path.write_text(json.dumps(value), encoding="utf-8")
    push([str(path)], place, store)
    text = (place.root / "README.md").read_text(encoding="utf-8")
    assert {"license", "base_model"}.isdisjoint(ModelCard(text).data.to_dict())
    assert "no fingerprint recorded" in text


def test_paths_of_this_machine_stay_out_of_the_card_and_are_told(
    tmp_path: Path, store: Store, place: SharedFolder
) -> None:
    path = tmp_path / "m.json"
    model = str(tmp_path / "my-model")
    value = shared_mask().to_json()
    text = json.dumps(value | {"model": {**HUB_MODEL, "name": model, "revision": "folder"}})
    path.write_text(text.replace("owner/tiny-bert", model), encoding="utf-8")
    pushed = push([str(path)], place, store)
    card = (place.root / "README.md").read_text(encoding="utf-8")
    assert str(tmp_path) not in card
    assert "`my-model`" in card
    (note,) = pushed.notes
    assert model in note


def test_words_of_others_are_no_markup_and_no_metadata(
    tmp_path: Path, store: Store, place: SharedFolder
) -> None:
    task = "x`\n---\nlicense: mit\n```\n<script>alert(1)</script> | [a](http://b)"
    mask = mask_file(
        tmp_path,
        task=task,
        languages=["th", "x\nlicense: mit"],
        evaluated={
            "test": {
                "task": task,
                "languages": {"<img src=x>": {"accuracy": 0.5, "n": 1, "note": "<b>*x*</b>"}},
            }
        },
    )
    push([str(mask)], place, store)
    text = (place.root / "README.md").read_text(encoding="utf-8")
    assert "license" not in ModelCard(text).data.to_dict()
    without_code = re.sub(r"```sh\n.*?\n```", "", text, flags=re.DOTALL)
    without_code = re.sub(r"`[^`\n]*`", "", without_code).replace(MARK, "")
    assert re.findall(r"(?<!\\)<\w", without_code) == []
    assert "\\<b\\>\\*x\\*" in text


@pytest.mark.parametrize("rule", ["bottom", "gates", "front"])
@pytest.mark.parametrize("odd", [True, None, [], [[1]], {"a": 1}, 1.5, "", "`x`\n# y"])
def test_a_spec_of_odd_values_is_described_and_reported_on(
    tmp_path: Path, store: Store, place: SharedFolder, rule: str, odd: object
) -> None:
    spec = shared_mask().chosen["score"]
    words = []
    for name, values in (
        ("a", {"model": {"name": odd, "fingerprint": odd}}),
        ("b", {"task": {"name": odd, "language": odd, "split": odd, "size": odd}}),
        ("c", {"method": {"name": odd, "options": odd}, "options": odd, "seed": odd}),
    ):
        key = "score" if rule == "bottom" else rule
        words.append(str(mask_file(tmp_path, name, rule=rule, **{key: {**spec, **values}})))
    assert push(words, place, store).notes == ()
    text = (place.root / "README.md").read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if line.startswith("# ")] == [
        "# Attention heads of owner/tiny-bert"
    ]
    write_report(words, tmp_path / "report.html", store)


@pytest.mark.parametrize(
    ("text", "is_replaceable"),
    [
        ("", True),
        ("---\nlicense: mit\n---\n", True),
        (f"---\nlicense: mit\n---\n{MARK}\n# Heads", True),
        ("# My project", False),
        ("---\nlicense: mit\n---\n# My model", False),
    ],
)
def test_a_readme_of_others_is_never_lost(
    tmp_path: Path, store: Store, place: SharedFolder, text: str, is_replaceable: bool
) -> None:
    place.root.mkdir()
    (place.root / "README.md").write_text(text, encoding="utf-8")
    assert EarlierCard(text).license == ("mit" if "license" in text else "")
    if is_replaceable:
        push([str(mask_file(tmp_path))], place, store)
        return
    with raises("share.card_of_others", "./shared"):
        push([str(mask_file(tmp_path))], place, store)
    assert list(files_in(place.root)) == ["README.md"]


def test_what_is_damaged_there_is_told_and_left_out_of_the_card(
    tmp_path: Path, store: Store, place: SharedFolder
) -> None:
    (place.root / "masks").mkdir(parents=True)
    (place.root / "masks" / "bad.json").write_text("{", encoding="utf-8")
    pushed = push([str(mask_file(tmp_path))], place, store)
    (note,) = pushed.notes
    assert "masks/bad.json" in note
    assert pushed.files.masks == ("bad", "m")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["missing"], "report.unknown"),
        (["abcd"], "report.key_unknown"),
        (["other.json"], "mask.not_a_mask"),
        (["a b.json"], "share.mask_name"),
        (["m.json", "deeper/m.json"], "share.name_twice"),
    ],
)
def test_what_cannot_be_shared_is_refused_before_anything_is_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    store: Store,
    place: SharedFolder,
    words: list[str],
    code: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    mask_file(tmp_path)
    mask_file(tmp_path, "a b")
    mask_file(tmp_path / "deeper", k=1, rule="threshold")
    (tmp_path / "other.json").write_text("{}", encoding="utf-8")
    with raises(code):
        push(words, place, store)
    assert not place.root.exists()


def test_a_licence_is_one_word(store: Store, place: SharedFolder) -> None:
    with raises("share.license_invalid", "apache-2.0"):
        push(["m.json"], place, store, license="mit\nbase_model: x")


# Taking.


def test_a_mask_of_another_model_is_refused_with_both_names(
    tmp_path: Path, store: Store, place: SharedFolder
) -> None:
    key = pushed_scores(place, store)
    push([str(mask_file(tmp_path))], place, store)
    out = tmp_path / "out.json"
    other = FittingModel("other-model", SHARED_GRID, "2" * 64)
    values = (
        "owner/tiny-bert",
        "1" * 12,
        "other-model",
        "2" * 12,
        "headlab evaluate",
    )
    with raises("share.other_model", *values):
        pull(place, mask_name="m", out=out, model=other)
    new_store = Store(tmp_path / "new")
    with raises("share.other_model", "owner/tiny-bert", "other-model"):
        pull(place, keys=[key], store=new_store, model=other)
    with raises("mask.other_grid"):
        pull(place, mask_name="m", out=out, model=FittingModel("same", GRID, "1" * 64))
    assert not out.exists()
    assert not new_store.root.exists()
    own = FittingModel("own", SHARED_GRID, "1" * 64)
    pull(place, mask_name="m", out=out, keys=[key], store=new_store, model=own)
    assert load_mask(out).fingerprint == "1" * 64


def test_scores_under_another_key_are_refused_and_nothing_is_written(
    tmp_path: Path, store: Store, place: SharedFolder
) -> None:
    key = pushed_scores(place, store)
    push([str(mask_file(tmp_path))], place, store)
    other_key = "0" * 64
    (place.root / "scores" / key).rename(place.root / "scores" / other_key)
    out = tmp_path / "out.json"
    new_store = Store(tmp_path / "new")
    with raises(
        "share.scores_invalid", other_key[:12], "its name does not match its spec"
    ) as caught:
        pull(place, mask_name="m", out=out, keys=[other_key], store=new_store)
    assert "Delete" not in str(caught.value)
    assert not out.exists()
    assert not new_store.root.exists()


def test_a_file_that_is_no_mask_is_not_replaced(
    tmp_path: Path, store: Store, place: SharedFolder
) -> None:
    push([str(mask_file(tmp_path))], place, store)
    out = tmp_path / "notes.json"
    out.write_text("[1]", encoding="utf-8")
    with raises("output.not_mask", "notes.json"):
        pull(place, mask_name="m", out=out)
    assert out.read_text(encoding="utf-8") == "[1]"
    pull(place, mask_name="m", out=mask_file(tmp_path, "older", k=1))


def test_which_mask_and_which_scores_are_meant_is_asked(
    tmp_path: Path, store: Store, place: SharedFolder
) -> None:
    with raises("share.place_missing", "./shared"):
        files_of(place)
    place.root.mkdir()
    with raises("share.nothing_there", "./shared"):
        files_of(place)
    key = pushed_scores(place, store)
    push([str(mask_file(tmp_path, "a")), str(mask_file(tmp_path, "b"))], place, store)
    files = files_of(place)
    with raises("share.mask_unnamed", "a, b", "--mask"):
        chosen_mask(files, None, place)
    for name in ("c", "../a", "masks/a", "", "a.json"):
        with raises("share.mask_unknown", "a, b"):
            chosen_mask(files, name, place)
    assert chosen_mask(files, "b", place) == "b"
    assert chosen_keys(files, ["all"], place) == chosen_keys(files, [key[:6]], place) == [key]
    for word in ("", key[:3], "ffff", "../x"):
        with raises("share.scores_unknown", key[:12]):
            chosen_keys(files, [word], place)


def test_links_and_odd_names_lead_nowhere(
    tmp_path: Path, store: Store, place: SharedFolder
) -> None:
    push([str(mask_file(tmp_path))], place, store)
    outside = mask_file(tmp_path, "outside")
    (place.root / "masks" / "link.json").symlink_to(outside)
    with raises("share.link", "masks/link.json"):
        pull(place, mask_name="link", out=tmp_path / "out.json")
    os.mkfifo(place.root / "masks" / "pipe.json")
    with raises("share.not_a_file", "masks/pipe.json"):
        pull(place, mask_name="pipe", out=tmp_path / "out.json")
    with raises("share.mask_name"):
        pull(place, mask_name="../../outside", out=tmp_path / "out.json")
    (tmp_path / "elsewhere").mkdir()
    linked = SharedFolder(tmp_path / "linked", "./linked")
    linked.root.mkdir()
    (linked.root / "masks").symlink_to(tmp_path / "elsewhere")
    with raises("share.link", "masks"):
        push([str(outside)], linked, store)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_large_file_is_not_read(tmp_path: Path, place: SharedFolder) -> None:
    path = place.root / "masks" / "large.json"
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(1 << 33)
    with raises("share.file_too_large", "masks/large.json", "4 MiB"):
        pull(place, mask_name="large", out=tmp_path / "out.json")


def test_thousands_of_files_are_listed_by_name_alone(
    monkeypatch: pytest.MonkeyPatch, place: SharedFolder
) -> None:
    (place.root / "masks").mkdir(parents=True)
    for number in range(3000):
        (place.root / "masks" / f"m{number}.json").touch()
    monkeypatch.setattr(SharedFolder, "read", lambda *_: pytest.fail("a file was read"))
    assert len(files_of(place).masks) == 3000


def test_names_that_are_not_of_the_layout_are_no_masks_or_scores() -> None:
    key = "a" * 64
    names = [
        "masks/../x.json",
        "/masks/x.json",
        "masks/x/y.json",
        "masks/.x.json",
        "masks/x.json\n",
        "masks/x.py",
        f"scores/{key}/spec.json",
        f"scores/{key}/other.npz",
        "scores/../result.npz",
        "model.safetensors",
    ]
    assert SharedFiles.named(names) == SharedFiles((), (), False)


def test_a_damaged_folder_gives_a_sentence_or_what_is_whole(
    tmp_path: Path, store: Store, place: SharedFolder
) -> None:
    key = pushed_scores(place, store)
    push([str(mask_file(tmp_path))], place, store)
    whole = files_in(place.root)
    random_numbers = random.Random(0)
    refused = 0
    for number in range(150):
        name = random_numbers.choice([name for name in whole if name != "README.md"])
        data = bytearray(whole[name])
        for _ in range(random_numbers.randint(1, 4)):
            at = random_numbers.randrange(len(data))
            data[at : at + random_numbers.randint(0, 40)] = random_numbers.randbytes(
                random_numbers.randint(0, 8)
            )
        (place.root / name).write_bytes(data)
        new_store = Store(tmp_path / f"new-{number}")
        try:
            pull(place, mask_name="m", out=tmp_path / "out.json", keys=[key], store=new_store)
        except HeadlabError:
            refused += 1
            assert not new_store.root.exists()
        else:
            assert load_mask(tmp_path / "out.json").grid == SHARED_GRID
            assert isinstance(new_store.scan().results[0].record, HeadScores)
        push([str(mask_file(tmp_path, "other"))], place, store)
        (place.root / name).write_bytes(whole[name])
    assert refused > 100


# Which place a word means.


@pytest.mark.parametrize(
    "word", ["./x", "../x", "/x", "~/x", ".", "..", "x/", "x/y/", "./owner/name"]
)
def test_a_word_with_the_form_of_a_path_is_a_folder(word: str) -> None:
    assert place_of(word).kind == "folder"


@pytest.mark.parametrize("word", ["owner/name", "hf://owner/name", "o.w-n_er/n.a-m_e"])
def test_owner_and_name_are_a_repository(word: str) -> None:
    assert place_of(word).kind == "repository"


@pytest.mark.parametrize(
    "word",
    [
        "",
        "x",
        "a/b/c",
        "hf://x",
        "hf://./x",
        "https://host/x",
        "a b/c",
        "~nobody/x",
        "./a\0b",
        "C:\\x",
    ],
)
def test_other_words_are_asked_about(word: str) -> None:
    with raises("share.place_unclear", "./masks", "owner/name"):
        place_of(word)


def test_a_repository_with_the_name_of_a_folder_here_is_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner").mkdir()
    with raises("share.place_unclear", "./owner/name", "hf://owner/name"):
        place_of("owner/name")
    assert place_of("hf://owner/name").kind == "repository"


def test_the_root_of_a_disk_is_no_place(tmp_path: Path, store: Store) -> None:
    for word in ("/", "/.."):
        with raises("share.folder_is_root"):
            push([str(mask_file(tmp_path))], place_of(word), store)


def test_a_folder_has_no_revision_and_is_no_file(tmp_path: Path) -> None:
    with raises("share.revision_of_folder", "--revision"):
        place_of("./x", revision="main")
    (tmp_path / "file").touch()
    with raises("share.folder_is_file"):
        files_of(place_of(f"{tmp_path}/file"))

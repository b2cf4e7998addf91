"""What the doctor finds in Python and in notebooks, and what it leaves alone."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from headlab.doctor import ADVICE
from headlab.doctor.checkpoints import pruned_layers
from headlab.doctor.notebooks import NotPython, as_python, code_cells
from headlab.doctor.python_source import (
    MASK_NAMES,
    METHODS,
    MOVED_FUNCTIONS,
    PRUNED_HEADS,
    REMOVED_FUNCTIONS,
    may_hold_findings,
    source_findings,
)

SCRIPTS = Path(__file__).parents[1] / "data" / "v4_scripts"


def kinds(source: str) -> list[tuple[int, str]]:
    return [(f.line, f.kind) for f in source_findings(textwrap.dedent(source))]


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("model(ids, head_mask=m)", "mask-keyword"),
        ("out = self.bert(**batch, decoder_head_mask=m)", "mask-keyword"),
        ("model(cross_attn_head_mask=m)", "mask-keyword"),
        ("model(**{'head_mask': m})", "mask-keyword"),
        ("partial(model, head_mask=m)", "mask-keyword"),
        ("model.module.forward(ids, head_mask=m)", "mask-keyword"),
        ("models[0](ids, head_mask=m)", "mask-keyword"),
        ("model.generate(ids, head_mask=m)", "mask-generate"),
        ("model.generate(**{'head_mask': m})", "mask-generate"),
        ("pipeline('text-classification', head_mask=m)", "mask-pipeline"),
        ("pipe = transformers.pipeline('x')\npipe('a', head_mask=m)", "mask-pipeline"),
        ("inputs = {'head_mask': m}", "mask-key"),
        ("inputs = dict(head_mask=m)", "mask-key"),
        ("inputs['head_mask'] = m", "mask-key"),
        ("inputs.update({'head_mask': m})", "mask-key"),
        ("inputs.setdefault('head_mask', m)", "mask-key"),
        ("model(ids, None, None, None, head_mask)", "mask-position"),
        ("self.encoder(hidden, mask, self.head_mask)", "mask-position"),
        ("m.prune_heads({0: [1]})", "prune-heads"),
        ("prune = model.bert.prune_heads", "prune-heads"),
        ("getattr(model, 'prune_heads')({0: [1]})", "prune-heads"),
        ("model.base_model._prune_heads(h)", "prune-heads"),
        ("class M(B):\n  def f(self): super().prune_heads(1)", "prune-heads"),
        ("hasattr(model, 'get_head_mask')", "method-asked-for"),
        ("class M(B):\n  def _prune_heads(self, h): pass", "hook-defined"),
        ("model.get_head_mask(m, 12)", "get-head-mask"),
        ("self.invert_attention_mask(m)", "attention-mask"),
        ("BertConfig(pruned_heads={0: [1]})", "config-keyword"),
        ("BertConfig(**{'pruned_heads': h})", "config-keyword"),
        ("options = {'pruned_heads': h}", "config-key"),
        ("model.config.pruned_heads = h", "config-set"),
        ("print(model.config.pruned_heads)", "config-read"),
        ("model.config.pruned_heads[0] = [1]", "config-read"),
        (
            "from transformers.pytorch_utils import find_pruneable_heads_and_indices as f",
            "function-removed",
        ),
        ("from transformers.modeling_utils import prune_layer", "function-removed"),
        ("import transformers.pytorch_utils as pu\npu.prune_conv1d_layer(x)", "function-removed"),
        ("import transformers\ntransformers.pytorch_utils.prune_layer(x)", "function-removed"),
        (
            "from transformers import pytorch_utils\npytorch_utils.prune_layer(x)",
            "function-removed",
        ),
        ("from transformers.modeling_utils import prune_linear_layer", "function-moved"),
    ],
)
def test_a_call_form_is_found_once(source: str, kind: str) -> None:
    assert [found_kind for _, found_kind in kinds(source)] == [kind]
    assert kind in ADVICE


@pytest.mark.parametrize(
    "source",
    [
        "model(ids, head_mask=None)",  # as transformers 4 had it by default
        "model(**{'head_mask': None})",
        "def forward(self, ids, head_mask=None): pass",
        "def run(model, head_mask): pass\nrun(model, head_mask=m)",
        "class A:\n  def run(self, head_mask): pass\n  def go(self): self.run(head_mask=m)",
        "class A(M):\n  def forward(self, x, head_mask): pass\na = A()\na(x, head_mask=m)",
        "class A(M):\n  def prune_heads(self, h): pass\nA().prune_heads(h)",
        "print(head_mask)",
        "torch.where(c, a, head_mask)",
        "head_mask = inputs['head_mask']",
        "self.pruned_heads = set()",
        "text = 'model.prune_heads({0: [1]})'  # head_mask=m",
        "from transformers.pytorch_utils import prune_linear_layer, apply_chunking_to_forward",
        "from transformers import apply_chunking_to_forward",
        "from .pytorch_utils import prune_layer",
        "self.prune_layer(x)",
        "import torch.nn.utils.prune as prune\nprune.prune_layer(x)",
        "with headlab.gated(model, head_mask): model.module(ids)",
    ],
)
def test_what_is_no_call_of_transformers_is_left_alone(source: str) -> None:
    assert kinds(source) == []


def test_every_name_that_is_looked_for_is_seen_before_a_tree_is_walked() -> None:
    for name in (*MASK_NAMES, *METHODS, *MOVED_FUNCTIONS, *REMOVED_FUNCTIONS, PRUNED_HEADS):
        assert may_hold_findings(name)
    assert not may_hold_findings("attention_mask = pipeline('x')")


def test_a_name_that_is_the_source_s_own_only_sometimes_is_found() -> None:
    source = """
        class Own(Module):
            def forward(self, x, head_mask): pass
        def one():
            model = Own()
            model(x, head_mask=m)
        def other(model):
            model(x, head_mask=m)
    """
    assert kinds(source) == [(6, "mask-keyword"), (8, "mask-keyword")]


def test_lines_are_those_of_the_name_in_a_long_chain() -> None:
    source = """\
        (
            AutoModel
            .from_pretrained(name)
            .prune_heads({0: [1]})
        )
    """
    assert kinds(source) == [(4, "prune-heads")]


def test_deep_and_long_sources_are_read_or_refused_in_one_exception() -> None:
    chain = "+".join(["a"] * 3000)
    for source in (
        "(" * 5000,
        "-" * 100_000 + "1",
        chain,
        "a" + ".b" * 3000,
        "f(" * 150 + ")" * 150,
    ):
        try:
            assert kinds(source) == []
        except (SyntaxError, RecursionError, MemoryError):
            continue


def test_a_source_is_decoded_as_its_first_lines_say() -> None:
    text = "# -*- coding: latin-1 -*-\nmodel(x, head_mask='\xe9')\n"
    assert [f.kind for f in source_findings(text.encode("latin-1"))] == ["mask-keyword"]
    assert [f.kind for f in source_findings(b"\xef\xbb\xbfm.prune_heads(1)")] == ["prune-heads"]
    for content in (text.replace("latin-1", "no-such").encode("latin-1"), b"a = '\xff'", b"\0"):
        with pytest.raises((SyntaxError, ValueError)):
            source_findings(content)


def notebook(*sources: str, **more: object) -> bytes:
    cells = [{"cell_type": "code", "source": source} for source in sources]
    return json.dumps({"cells": cells, "nbformat": 4, **more}).encode()


@pytest.mark.parametrize(
    ("cell", "python"),
    [
        ("%matplotlib inline\nx = 1", "pass\nx = 1"),
        ("!pip install \\\n  headlab\nx = 1", "pass\n\nx = 1"),
        ("if x:\n    !ls\nfiles = !ls", "if x:\n    pass\npass"),
        ("model?\nmodel.forward??\n?model", "pass\npass\npass"),
        ("x = a \\\n% b", "x = a \\\n% b"),
        ("print('%d'\n  % 3)", "print('%d'\n  % 3)"),
        ('"""\n%no magic\n"""', '"""\n%no magic\n"""'),
        ("x = 1  # what?", "x = 1  # what?"),
        ("%time model(head_mask=m)", "model(head_mask=m)"),
        ("%timeit -n 3 -r2 model(x)", "model(x)"),
        ("%time !ls", "pass"),
        ("%%time\nx = 1", "pass\nx = 1"),
        ("%%writefile train.py\nx = 1", "pass\nx = 1"),
        ("%%writefile notes.txt\nno python", ""),
        ("%%bash\nls | head", ""),
        ("%%", ""),
        ("a = 'it\\'s'\n%ls", "a = 'it\\'s'\npass"),
    ],
)
def test_what_ipython_alone_understands_is_no_syntax_error(cell: str, python: str) -> None:
    assert as_python(cell) == python


def test_cells_keep_their_numbers_and_lines() -> None:
    cells: list[object] = [
        {"cell_type": "markdown", "source": "model.prune_heads"},
        {"cell_type": "code", "source": ["import x\n", "\n", "m.prune_heads(1)"]},
        {"cell_type": "code", "source": 3},
        7,
    ]
    (cell,) = code_cells(json.dumps({"cells": cells}).encode())
    assert cell.number == 2
    assert kinds(cell.source) == [(3, "prune-heads")]


def test_notebooks_of_format_3_are_read() -> None:
    sheet = {"cells": [{"cell_type": "code", "input": ["m.prune_heads(1)"]}]}
    (cell,) = code_cells(json.dumps({"worksheets": [sheet], "nbformat": 3}).encode())
    assert kinds(cell.source) == [(1, "prune-heads")]


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"cells": 3}', b"\xff", b"[" * 100_000, b"null"]
)
def test_what_is_no_notebook_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        code_cells(content)


def test_notebooks_of_other_languages_say_so() -> None:
    with pytest.raises(NotPython, match="julia"):
        code_cells(notebook("x", metadata={"kernelspec": {"language": "julia"}}))
    for metadata in ({}, None, {"language_info": {"name": "python"}}, {"kernelspec": 3}):
        assert len(code_cells(notebook("x", metadata=metadata))) == 1


def test_a_long_line_of_blanks_takes_no_time() -> None:
    assert as_python(" " * 300_000 + "x") == " " * 300_000 + "x"
    assert as_python("%time" + " -n" * 50_000) == "pass"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"pruned_heads": {"0": [1, 3], "2": [0]}}, ["pruned_heads: 3 heads in 2 layers"]),
        ({"pruned_heads": {"0": [1]}}, ["pruned_heads: 1 head in 1 layer"]),
        (
            {"encoder": {"pruned_heads": {"0": [1]}}, "decoder": {"pruned_heads": {"1": [1, 2]}}},
            ["encoder.pruned_heads: 1 head in 1 layer", "decoder.pruned_heads: 2 heads in 1 layer"],
        ),
        ({"pruned_heads": {}}, []),
        ({"pruned_heads": {"0": []}}, []),
        ({"pruned_heads": None}, []),
        ({"pruned_heads": 3}, []),
        ([1], []),
    ],
)
def test_checkpoints_with_pruned_heads_are_found(config: object, words: list[str]) -> None:
    assert [layers.words for layers in pruned_layers(json.dumps(config).encode())] == words


def test_the_line_in_a_config_is_that_of_its_field() -> None:
    (layers,) = pruned_layers((SCRIPTS / "checkpoint" / "config.json").read_bytes())
    assert layers.line == 16
    nested = {"a": {"pruned_heads": {}}, "b": {"pruned_heads": {"0": [1]}}}
    (layers,) = pruned_layers(json.dumps(nested, indent=1).encode())
    assert layers.line == 6

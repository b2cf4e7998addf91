"""What transformers 5 does with each thing that is found, and what to write instead."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Advice:
    """What is said of one kind of finding.

    Attributes:
        title: What was found.
        does: What transformers 5 does with it.
        instead: What to write.
    """

    title: str
    does: str
    instead: str


GATED = (
    "model = headlab.load(MODEL), then call model.module below `with headlab.gated(model, "
    "head_mask):`, which takes the same [layer, head] array, or a mask file that "
    "headlab.load_mask(FILE) reads. `headlab mask convert` makes FILE of an array or a list of "
    "heads; `headlab mask snippet FILE` writes a script that needs no headlab."
)
REMOVED = (
    "`headlab mask convert '5:1,3' --model MODEL --out mask.json` for heads 1 and 3 of layer 5, then "
    "`headlab shrink --mask mask.json --out smaller`: the heads leave the weights, with a proof "
    "that the answers stay those of the masked model."
)

ADVICE = {
    "mask-keyword": Advice(
        "a head mask passed by name",
        "its models take it into **kwargs and drop it without a word: all heads stay on, and the "
        "numbers are those of the whole model (a forward without **kwargs, as of Bark and Encodec, "
        "raises TypeError)",
        GATED,
    ),
    "mask-generate": Advice(
        "a head mask passed to generate",
        "ValueError: generate refuses it as one of the `model_kwargs` that are not used by the model",
        GATED,
    ),
    "mask-pipeline": Advice(
        "a head mask passed to a pipeline",
        "text-classification and feature-extraction hand it to the tokenizer, which drops it without "
        "a word: all heads stay on; text-generation raises ValueError, token-classification "
        "TypeError",
        "model = headlab.load(MODEL), pipeline(…, model=model.module, tokenizer=…), and its call "
        "below `with headlab.gated(model, mask):`; or give pipeline the folder that `headlab export "
        "--mask mask.json --as folder --out FOLDER` writes.",
    ),
    "mask-key": Advice(
        "a head mask in a dictionary",
        "if it reaches a model as model(**inputs), it is dropped without a word and all heads stay "
        "on; generate(**inputs) raises ValueError",
        GATED,
    ),
    "mask-position": Advice(
        "a head mask passed by position",
        "it lands in the argument that has this position now: inputs_embeds in BERT, DistilBERT and "
        "GPT-2, which raise ValueError; encoder_outputs in T5 and BART, which raise IndexError",
        GATED,
    ),
    "prune-heads": Advice(
        "prune_heads",
        "AttributeError: no model and no attention module has it",
        REMOVED,
    ),
    "method-asked-for": Advice(
        "hasattr of a method that is gone",
        "it is False for every model, so the branch that prunes or masks is not taken, without a word",
        REMOVED,
    ),
    "hook-defined": Advice(
        "a class that defines _prune_heads",
        "nothing calls it any more: neither prune_heads nor pruned_heads of a config leads to it",
        REMOVED,
    ),
    "get-head-mask": Advice(
        "get_head_mask",
        "AttributeError: no model has it, and no layer takes what it gave",
        GATED,
    ),
    "attention-mask": Advice(
        "invert_attention_mask or get_extended_attention_mask",
        "AttributeError: no model has it",
        "transformers.masking_utils.create_bidirectional_mask, or create_causal_mask for a decoder.",
    ),
    "config-keyword": Advice(
        "pruned_heads passed to a config or a call",
        "a config keeps it as an attribute that nothing reads: the model is built with all heads, "
        "without a word",
        REMOVED,
    ),
    "config-key": Advice(
        "pruned_heads in a dictionary",
        "if it reaches a config, it is kept as an attribute that nothing reads: the model is built "
        "with all heads, without a word",
        REMOVED,
    ),
    "config-set": Advice(
        "pruned_heads of a config, set",
        "the config keeps it, and nothing reads it: all heads stay, without a word",
        REMOVED,
    ),
    "config-read": Advice(
        "pruned_heads of a config, read",
        "AttributeError, unless the config's file or code sets it: configs have no such field of "
        "their own any more, and what is in it is not done to the model",
        "keep the heads in a mask file: headlab.load_mask(FILE).removed lists them. `headlab mask "
        "convert config.json --out mask.json` makes one of a checkpoint's config.",
    ),
    "function-removed": Advice(
        "a function for pruning that is gone",
        "ImportError, or AttributeError where it is looked up in the module",
        REMOVED,
    ),
    "function-moved": Advice(
        "a function that is in another module only",
        "ImportError, or AttributeError where it is looked up in the module",
        "import it from transformers.pytorch_utils.",
    ),
    "checkpoint": Advice(
        "a checkpoint with pruned heads",
        "the field is read and not used: if the weights were saved without these heads, "
        "from_pretrained raises RuntimeError about sizes (with ignore_mismatched_sizes=True it makes "
        "these layers up at random); if the weights are whole, all heads are on, without a word",
        "`headlab mask convert config.json --model MODEL --out mask.json` keeps the list of heads, for "
        "the whole model that it was pruned from as MODEL. Then `headlab evaluate --mask mask.json`, or "
        "`headlab shrink --mask mask.json --out smaller`.",
    ),
}
"""By kind of finding, in the order in which they are shown."""

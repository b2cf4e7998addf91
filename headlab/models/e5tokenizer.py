"""The XLM-R style tokenizer of the packaged model."""

from __future__ import annotations

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from headlab.models.charsmap import charsmap
from headlab.models.e5file import E5File


def specials(file: E5File) -> dict[str, str]:
    """{role: token} of the special tokens."""
    h = file.header
    out = {role: file.pieces[i][0] for role, i in (("bos", h.bos), ("eos", h.eos), ("pad", h.pad), ("unk", h.unk))}
    return out | {"cls": out["bos"], "sep": out["eos"]} | ({"mask": "<mask>"} if has_mask(file) else {})


def has_mask(file: E5File) -> bool:
    """Whether the pieces hold a mask token."""
    return any(piece == "<mask>" for piece, _ in file.pieces)


def tokenizer_config(file: E5File) -> dict[str, object]:
    """What `AutoTokenizer` needs beside tokenizer.json."""
    return {f"{role}_token": token for role, token in specials(file).items()} | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "backend": "tokenizers",
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": file.header.positions,
        "padding_side": "right",
    }


def tokenizer(file: E5File) -> Tokenizer:
    """XLM-R style unigram tokenizer: the file's character map, single spaces, "▁" before words."""
    h, names = file.header, specials(file)
    out = Tokenizer(models.Unigram(list(file.pieces), unk_id=h.unk, byte_fallback=False))
    out.normalizer = normalizers.Sequence(
        [
            normalizers.Precompiled(charsmap(file.characters)),
            normalizers.Replace(Regex(" {2,}"), " "),
            normalizers.Strip(left=False, right=True),
        ]
    )
    out.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    out.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    tokens = [AddedToken(names[r], special=True, normalized=False) for r in ("bos", "pad", "eos", "unk")]
    if "mask" in names:
        tokens.append(AddedToken(names["mask"], special=True, lstrip=True, normalized=False))
    out.add_special_tokens(tokens)
    bos, eos = names["bos"], names["eos"]
    out.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A {eos}",
        pair=f"{bos} $A {eos} {eos} $B {eos}",
        special_tokens=[(bos, h.bos), (eos, h.eos)],
    )
    return out

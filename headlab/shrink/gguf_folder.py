"""The folder of a pruned decoder as a GGUF file, with a proof that its answers stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from headlab.core import HeadlabError, JsonRecord, do_nothing, unwritable_error
from headlab.hooks import Model
from headlab.masks import Mask
from headlab.models import file_hashes, replacing_folder
from headlab.shrink.folder import (
    COMPARING,
    GGUF_FILE,
    PROOF,
    READING_BACK,
    WRITING,
    Proofs,
    WrittenModel,
    check_target,
    record_of,
    write_papers,
)
from headlab.shrink.gguf_file import (
    EXACT_TYPE,
    NUMBER_TYPES,
    read_into,
    require_gguf,
    require_whole_groups,
    write_gguf,
)
from headlab.shrink.gguf_tokens import TokenizedModel, token_fields
from headlab.shrink.model import Shrunk, bytes_in, checkpoint_dtype, shrink_model
from headlab.shrink.proof import Inputs, check_rounding, prove, random_inputs
from headlab.shrink.smaller_vocabulary import covered_batches, with_vocabulary
from headlab.shrink.vocabulary_cut import SmallerVocabulary

ADVICE = "use --dtype float32"
"""What to do where rounding changes too much."""


def check_number_type(name: str | None) -> None:
    """Raise HeadlabError unless a GGUF file can hold such numbers; None for float32."""
    if name is not None and name not in NUMBER_TYPES:
        raise HeadlabError(
            f"headlab writes GGUF in {', '.join(NUMBER_TYPES)}, not in {name}; use one of them "
            "with --dtype",
            code="gguf.dtype_unknown",
        )


def write_gguf_folder(
    model: Model,
    mask: Mask,
    target: Path,
    inputs: Inputs,
    *,
    compared_on: JsonRecord,
    number_type: str = EXACT_TYPE,
    command: Sequence[str] | None = None,
    vocabulary: SmallerVocabulary | None = None,
    tick: Callable[[], None] = do_nothing,
    begin_step: Callable[[str], None] = lambda note: None,
) -> tuple[WrittenModel, Shrunk]:
    """Write a decoder without a mask's heads as model.gguf, with card, mask and proof, atomically.

    Args:
        model: The original, of Llama's exact layer.
        mask: Whose heads are removed, in whole groups.
        target: Folder to write.
        inputs: Batches of real examples to compare on.
        compared_on: What they are, for the record.
        number_type: One of `NUMBER_TYPES`.
        command: That writes the same, for the record.
        vocabulary: That the file gets; None for the original's.
        tick: Called between batches that are compared; may raise to stop: nothing is left at
            `target` then.
        begin_step: Called with what begins now, as `headlab.shrink.folder.WRITING`.

    Returns:
        What was written, and the smaller model, with the weights that the file has.

    Raises:
        HeadlabError: The model, its tokenizer or the mask cannot be written so, the answers differ
            by more than rounding, or `target` holds something else.
    """
    check_target(target, model.name if model.checkpoint.revision == "folder" else None)
    check_number_type(number_type)
    require_gguf(model)
    tokens = token_fields(model)
    shrunk = replace(shrink_model(model, mask), form="gguf")
    require_whole_groups(model, shrunk)
    if vocabulary is not None:
        shrunk = with_vocabulary(shrunk, vocabulary)
        tokens = token_fields(TokenizedModel(model.name, vocabulary.tokenizer, shrunk.module))
        inputs = covered_batches(inputs, vocabulary.cut)
    cut = shrunk.cut
    inputs_of_proofs = (inputs, random_inputs(model, inputs, seed=0, cut=cut))
    with replacing_folder(target) as build:
        removal_proof = None
        if number_type != model.dtype:
            removal_proof = prove(model, mask, shrunk.module, inputs, cut=cut, tick=tick)
            removal_proof.check(f"the model for {target}")
        path = build / GGUF_FILE
        begin_step(WRITING)
        try:
            write_gguf(model, shrunk, path, number_type, tokens)
        except OSError as error:
            # numpy's of a full disk has no number
            error_with_number = error if error.errno is not None else OSError(0, str(error))
            raise unwritable_error(target, error_with_number) from error
        begin_step(READING_BACK)
        is_rounded = read_into(model, shrunk, path) and number_type != model.dtype
        begin_step(COMPARING)
        proof, random_proof = [
            prove(
                model,
                mask,
                shrunk.module,
                batches,
                dtype=number_type,
                is_rounded=is_rounded,
                cut=cut,
                tick=tick,
            )
            for batches in inputs_of_proofs
        ]
        if is_rounded:
            check_rounding(proof, random_proof, number_type, ADVICE)
        else:
            proof.check(f"{GGUF_FILE} for {target}")
            random_proof.check(f"{GGUF_FILE} for {target}, on random input,")
        proofs = Proofs(proof, random_proof, removal_proof if is_rounded else None)
        record = record_of(
            model,
            shrunk,
            proofs,
            file_hashes(build, PROOF)[GGUF_FILE],
            compared_on,
            {
                "dtype_before": checkpoint_dtype(model),
                "dtype_after": number_type,
                "bytes_before": bytes_in(shrunk.parameters_before, checkpoint_dtype(model)),
                "bytes_after": path.stat().st_size,
            },
            means_of=None,
            command=command,
        )
        write_papers(build, model, shrunk, record, None)
    return WrittenModel(target, proofs.proof, record["fingerprint"], record), shrunk

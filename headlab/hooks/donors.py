"""What stands in a closed player's place where it is another text's: outputs of an untouched pass.

They are recorded where players are gated: what a head gives before the output projection, what the
neurons of a feed-forward part give before the down projection, and what a whole layer adds to its
input. They replace outputs position by position, as far as both texts go, and 0 stands beyond.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import torch

from headlab.core import Bools, HeadlabError, Ints
from headlab.core.devices import on_device
from headlab.hooks.model import Model
from headlab.hooks.parts import layers_of
from headlab.hooks.state import (
    HEAD_OUTPUTS,
    LAYER_OUTPUTS,
    NEURON_OUTPUTS,
    ActiveGates,
    GatedPart,
    pick_rows,
)

ENCODER = "encoder"
Side = Literal["source", "target"]


class Place(NamedTuple):
    """Where outputs are gated.

    Attributes:
        part: The kind of part.
        number: The row of the grid of heads, or the number of the layer.
    """

    part: GatedPart
    number: int


@dataclass(frozen=True)
class TextOutputs:
    """Outputs of an untouched model on some texts, by where they are gated.

    Attributes:
        tables: The outputs at the positions of all texts, one text after the other, and a last
            position of zeros, [position, ...].
        sides: Which text a place reads, where there are a source and a target.
        starts: The first position of each text in the tables of a side, int [text].
        lengths: How many positions it has there, int [text].
    """

    tables: Mapping[Place, torch.Tensor]
    sides: Mapping[Place, Side]
    starts: Mapping[Side, Ints]
    lengths: Mapping[Side, Ints]

    @property
    def bytes(self) -> int:
        """Memory that they take."""
        return sum(table.numel() * table.element_size() for table in self.tables.values())


@dataclass(eq=False)
class Donors:
    """The texts whose outputs stand in closed players' places, one for each row of a batch.

    Attributes:
        outputs: Of the texts.
        texts: Which of them is each row's donor, int [row].
        is_own: Whether it is the text of the row itself, bool [row]: nothing is changed there, to
            the bit, as it would be if the outputs came from another batch.
        places: Where in its donor each position of a row is, int [row, position], below 0 where the
            donor has ended; None for the same place in both.
    """

    outputs: TextOutputs
    texts: Ints
    is_own: Bools
    places: Ints | None = None
    _indices: dict[tuple[Side, int, torch.device], torch.Tensor] = field(
        default_factory=dict, repr=False
    )
    _own_rows: dict[torch.device, torch.Tensor] = field(default_factory=dict, repr=False)

    def taking(self, rows: Ints) -> Donors:
        """The donors of a batch whose rows are copies of these, int [row]."""
        places = None if self.places is None else self.places[rows]
        return Donors(self.outputs, self.texts[rows], self.is_own[rows], places)

    def opened(self, gate: torch.Tensor, active: ActiveGates) -> torch.Tensor:
        """Gates with those of rows open whose donor is the row's own text.

        Args:
            gate: The first axis is of rows, or has the length 1.
            active: What is in effect.
        """
        if not self.is_own.any():
            return gate
        if gate.device not in self._own_rows:
            self._own_rows[gate.device] = on_device(self.is_own, gate.device)
        is_own = self._own_rows[gate.device]
        if active.states is not None and active.states.rows is not None:
            is_own = pick_rows(is_own, active.states.rows)
        return torch.where(is_own.reshape(-1, *[1] * (gate.dim() - 1)), 1, gate)

    def rows_being_computed(self, active: ActiveGates) -> int:
        """How many rows of the batch are computed now."""
        rows = None if active.states is None else active.states.rows
        if rows is None:
            return len(self.texts)
        return len(range(len(self.texts))[rows]) if isinstance(rows, slice) else len(rows)

    def output(
        self, part: GatedPart, number: int, own: torch.Tensor, active: ActiveGates
    ) -> torch.Tensor:
        """The donors' outputs in the place of a batch's own, of the same shape.

        Args:
            part: The kind of part.
            number: The row of the grid of heads, or the number of the layer.
            own: The batch's outputs, [row, position, ...], of the rows that are being computed.
            active: What is in effect.
        """
        place = Place(part, number)
        table = self.outputs.tables[place]
        index = self._index(self.outputs.sides[place], own.shape[1], table.device)
        if active.states is not None and active.states.rows is not None:
            index = pick_rows(index, active.states.rows)
        if len(index) != len(own):
            raise HeadlabError(
                f"there are donors for {len(index)} rows, and the batch has {len(own)}; give one "
                "for each example",
                code="gate.rows_mismatch",
            )
        outputs = table.index_select(0, index.flatten())
        return outputs.view(*index.shape, *table.shape[1:]).to(own.device)

    def _index(self, side: Side, width: int, device: torch.device) -> torch.Tensor:
        """Where in a table the output for each position of each row is, int [row, position]."""
        key = (side, width, device)
        if key not in self._indices:
            lengths = self.outputs.lengths[side]
            starts = self.outputs.starts[side][self.texts][:, None]
            places = self._places_of(lengths, width)
            # The last position of a table is that of the zeros.
            index = np.where(places >= 0, starts + places, int(lengths.sum()))
            self._indices[key] = on_device(index, device)
        return self._indices[key]

    def _places_of(self, lengths: Ints, width: int) -> Ints:
        """`places` of so many positions, below 0 where a text has ended, int [row, position].

        Args:
            lengths: Of all texts, int [text].
            width: Number of positions, which may be those of a larger batch.
        """
        positions = np.arange(width)
        if self.places is None:
            return np.where(positions < lengths[self.texts][:, None], positions, -1)
        places = np.full((len(self.texts), width), -1, np.int64)
        shared = min(width, self.places.shape[1])
        places[:, :shared] = self.places[:, :shared]
        return places


class OutputsOfBatch(NamedTuple):
    """What one untouched pass gives.

    Attributes:
        outputs: Of the real tokens of each place, row by row, [position, ...].
        sides: See `TextOutputs`.
        lengths: How many real tokens each row has, int [row], by side.
    """

    outputs: Mapping[Place, torch.Tensor]
    sides: Mapping[Place, Side]
    lengths: Mapping[Side, Ints]

    @property
    def bytes(self) -> int:
        """Memory that they take."""
        return sum(output.numel() * output.element_size() for output in self.outputs.values())


@dataclass
class Recorder:
    """Records the outputs of one untouched pass at all places that a model gates.

    Attributes:
        model: The model.
        is_token: Whether a position is a real token, bool [row, position], by side.
    """

    model: Model
    is_token: Mapping[Side, torch.Tensor]

    def __post_init__(self) -> None:
        players = self.model.player_set
        self._parts = {HEAD_OUTPUTS}
        if players is not None:
            has_part = {
                HEAD_OUTPUTS: bool(players.head_cells),
                NEURON_OUTPUTS: bool(players.neuron_cells),
                LAYER_OUTPUTS: bool(players.layer_rows),
            }
            self._parts = {part for part, is_gated in has_part.items() if is_gated}
        heads = self.model.head_grid
        self._stacks = {
            HEAD_OUTPUTS: list(heads.rows),
            NEURON_OUTPUTS: [layer.stack for layer in layers_of(heads)],
            LAYER_OUTPUTS: [layer.stack for layer in layers_of(heads)],
        }
        self.outputs: dict[Place, torch.Tensor] = {}
        self.sides: dict[Place, Side] = {}

    def __call__(self, part: GatedPart, number: int, output: torch.Tensor) -> None:
        """Keep the output of one place, [row, position, ...]."""
        if part not in self._parts:
            return
        has_decoder = bool(self.model.module.config.is_encoder_decoder)
        reads_target = has_decoder and self._stacks[part][number] != ENCODER
        side: Side = "target" if reads_target else "source"
        is_token = self.is_token[side].to(output.device)
        if part == NEURON_OUTPUTS and output.dim() == 2:  # the tokens of a row stand together
            output = output.reshape(len(is_token), -1, output.shape[-1])
        # Longformer pads a text to whole windows.
        output = output[:, : is_token.shape[1]]
        if output.shape[:2] != is_token.shape:
            raise HeadlabError(
                f"{type(self.model.module).__name__} merges tokens between layers, so no other text's output can "
                "stand in a player's place position by position; use ablation zero",
                code="ablation.tokens_merged",
            )
        place = Place(part, number)
        self.outputs[place] = output[is_token]
        self.sides[place] = side


def recorder_of(model: Model, inputs: Mapping[str, torch.Tensor]) -> Recorder:
    """A recorder for one pass of a batch, which its caller runs under `recording`.

    Args:
        model: The model.
        inputs: Of the batch.
    """
    source = inputs["attention_mask"].bool()
    target = inputs.get("decoder_attention_mask", inputs["attention_mask"]).bool()
    return Recorder(model, {"source": source, "target": target})


def recording(recorder: Recorder) -> ActiveGates:
    """What is in effect while a recorder records an untouched pass."""

    def head_outputs(row: int, context: torch.Tensor) -> None:
        recorder(HEAD_OUTPUTS, row, context)

    return ActiveGates(contexts=head_outputs, part_outputs=recorder)


def recorded(recorder: Recorder) -> OutputsOfBatch:
    """What a recorder has, after its pass."""
    lengths: dict[Side, Ints] = {}
    for side, is_token in recorder.is_token.items():
        lengths[side] = is_token.sum(dim=1).cpu().numpy().astype(np.int64)
    return OutputsOfBatch(recorder.outputs, recorder.sides, lengths)


def text_outputs(batches: list[tuple[Ints, OutputsOfBatch]], texts: int) -> TextOutputs:
    """The outputs of all batches as one table for each place.

    Args:
        batches: The numbers of the texts of each batch, int [row], and its outputs. It is emptied,
            so that nothing is in memory twice for long.
        texts: Number of texts.
    """
    starts: dict[Side, Ints] = {}
    lengths: dict[Side, Ints] = {}
    for side in batches[0][1].lengths:
        starts[side] = np.zeros(texts, np.int64)
        lengths[side] = np.zeros(texts, np.int64)
        position = 0
        for numbers, batch in batches:
            counts = batch.lengths[side]
            starts[side][numbers] = position + np.cumsum(counts) - counts
            lengths[side][numbers] = counts
            position += int(counts.sum())
    sides = dict(batches[0][1].sides)
    by_place = {place: [batch.outputs[place] for _, batch in batches] for place in sides}
    batches.clear()
    tables: dict[Place, torch.Tensor] = {}
    for place in sides:
        outputs = by_place.pop(place)
        tables[place] = torch.cat([*outputs, torch.zeros_like(outputs[0][:1])])
    return TextOutputs(tables, sides, starts, lengths)

"""Taking heads out of a model: rows of query, key and value, columns of the output projection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from headlab.errors import HeadlabError
from headlab.models.shrunk.families import FAMILIES, Family, Unit, base_type, outputs, stacks, units
from headlab.models.shrunk.forward import BiasOnly, Headless, OwnBias, PickedBias, become

Layers = Mapping[str, Sequence[Sequence[int]]]  # {stack: [layer][heads]}


def cut_structure(module: PreTrainedModel, heads: Layers) -> None:
    """Give a whole model's layers the shapes they have with these heads only, in place; values mean nothing then.

    Raises HeadlabError if the model has no such layers or heads.
    """
    family, found = FAMILIES[base_type(module.config)], units(module)
    check_heads(found, _of_class(module, found, heads))
    for unit in found:
        if unit.stack in heads:
            stay = list(heads[unit.stack][unit.layer])
            _shape(unit, family, stay)
            _behave(unit, family, stay)


def cut_state(
    module: PreTrainedModel, stay: Layers, closed: Layers
) -> dict[str, torch.Tensor]:  # fmt: skip
    """All weights of a model, without those of the heads that go; the model stays as it is.

    stay: heads left, as they stand in the layer now.  closed: those of them that give nothing from now on, as their
    group is needed.
    """
    family = FAMILIES[base_type(module.config)]
    state = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
    for unit in units(module):
        if unit.stack not in stay:
            continue
        out = f"{unit.path}.{family.out}.weight"
        columns = _spread(closed[unit.stack][unit.layer], unit.size).to(state[out].device)
        state[out].index_fill_(_inputs(unit.module.get_submodule(family.out)), columns, 0)
        for name, dim, places in picks(unit, family, stay[unit.stack][unit.layer]):
            key = f"{unit.path}.{name}"
            state[key] = state[key].index_select(dim, places.to(state[key].device))
    return state


def picks(unit: Unit, family: Family, stay: Sequence[int]) -> Iterator[tuple[str, int, torch.Tensor]]:
    """(parameter relative to the unit, dimension, what stays of it) for the heads that stay."""
    queries = _spread(stay, unit.size)
    keys = _spread(sorted({head // unit.group for head in stay}), unit.size)
    if family.fused:
        width = unit.heads * unit.size
        queries_keys_values = torch.cat([queries + part * width for part in range(3)])
        yield from _outputs(unit, family.rows[0], queries_keys_values)
    else:
        for name in family.rows:
            yield from _outputs(unit, name, queries if name == family.rows[0] else keys)
    yield f"{family.out}.weight", _inputs(unit.module.get_submodule(family.out)), queries


def _outputs(unit: Unit, name: str, places: torch.Tensor) -> Iterator[tuple[str, int, torch.Tensor]]:
    projection = unit.module.get_submodule(name)
    yield f"{name}.weight", 1 - _inputs(projection), places
    if projection.bias is not None:
        yield f"{name}.bias", 0, places


def _inputs(projection: nn.Module) -> int:
    """The dimension of a projection's weight along which its inputs lie: GPT-2's Conv1D keeps it turned."""
    return 1 if isinstance(projection, nn.Linear) else 0


def _spread(heads: Sequence[int], size: int) -> torch.Tensor:
    """Places of heads in a dimension that holds them side by side, int64 [head × size]."""
    return (torch.tensor(list(heads), dtype=torch.long)[:, None] * size + torch.arange(size)).flatten()


def _shape(unit: Unit, family: Family, stay: Sequence[int]) -> None:
    for name, dim, places in picks(unit, family, stay):
        path, _, own = name.rpartition(".")
        projection: Any = unit.module.get_submodule(path)
        old = getattr(projection, own)
        smaller = old.detach().narrow(dim, 0, len(places)).clone()
        setattr(projection, own, nn.Parameter(smaller, requires_grad=old.requires_grad))
        if own == "weight" and isinstance(projection, nn.Linear):
            projection.out_features, projection.in_features = projection.weight.shape
        elif own == "weight":
            projection.nx, projection.nf = projection.weight.shape
    for name in family.counts:
        setattr(unit.core, name, len(stay))
    for name in family.widths:
        setattr(unit.core, name, len(stay) * unit.size)


def _behave(unit: Unit, family: Family, stay: list[int]) -> None:
    """Give a layer the forward pass its heads ask for."""
    if not stay:
        inside = "" if family.core else family.out
        become(unit.core, Headless, out_name=inside, gives_bias=family.biased)
        out = unit.module.get_submodule(family.out)
        become(out, BiasOnly, width=outputs(out))
    elif family.biased and unit.stack == "cross":
        become(unit.core, OwnBias)
    elif family.biased:
        become(unit.core, PickedBias, picked=stay)


def _of_class(module: PreTrainedModel, found: Sequence[Unit], heads: Any) -> Any:
    """The list of heads without stacks that the family has and this class leaves out: a decoder of its own, say."""
    absent = set(stacks(module)) - {unit.stack for unit in found}
    return {name: rows for name, rows in heads.items() if name not in absent} if isinstance(heads, Mapping) else heads


def check_heads(found: Sequence[Unit], heads: Any) -> None:
    """Raise HeadlabError unless {stack: [layer][heads]} names heads of these layers, in order and in whole groups."""
    layers: dict[str, list[Unit]] = {}
    for unit in found:
        layers.setdefault(unit.stack, []).append(unit)
    if not isinstance(heads, Mapping) or not set(heads) <= set(layers):
        raise HeadlabError(
            f"this model has heads in {', '.join(layers)}; its list of heads names others",
            code="shrunk.stacks_mismatch",
        )
    for stack, rows in heads.items():
        if not isinstance(rows, list | tuple) or len(rows) != len(layers[stack]):
            raise HeadlabError(
                f"stack {stack} has {len(layers[stack])} layers; its list of heads has others",
                code="shrunk.layers_mismatch",
            )
        for unit, row in zip(layers[stack], rows, strict=True):
            if not _fits(unit, row):
                raise HeadlabError(
                    f"stack {stack}, layer {unit.layer} has heads 0 to {unit.heads - 1} in groups of {unit.group}; "
                    f"its list of heads is {row!r}",
                    code="shrunk.heads_mismatch",
                )


def _fits(unit: Unit, row: Any) -> bool:
    if not isinstance(row, list | tuple) or not all(type(head) is int and 0 <= head < unit.heads for head in row):
        return False
    groups = {head // unit.group for head in row}
    return list(row) == sorted(set(row)) and len(row) == len(groups) * unit.group

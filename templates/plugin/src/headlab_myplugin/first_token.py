"""How much of a head's attention goes to the first token, where heads with nothing to do look."""

import numpy as np
from headlab.methods import Method, MethodCost

# torch and transformers are imported in functions: `headlab --help` reads this file without them.


def max_forwards(options, heads, examples):
    """Each example goes through the model once."""
    return examples


METHOD = Method(
    key="first-token",
    title="Attention to the first token",
    cost=MethodCost("1 forward an example", max_forwards),
    paper="an example",
    estimand="share of attention to the first token",
    unit="share",
    signed=False,
    intervals=False,
    module="headlab_myplugin.first_token",
    options={},
    whole=True,
)


def run(work):
    """The mean share over all real tokens.

    Args:
        work: The evaluator with the model and the examples, the seed and the options.

    Returns:
        An `Outcome` with a value for each head, in the order of the model's grid.
    """
    from headlab.hooks import sum_weights
    from headlab.methods.run import Outcome

    evaluator = work.evaluator
    grid = evaluator.model.grid
    sums = np.zeros((grid.layers, grid.width))
    tokens = 0.0
    for batch in evaluator.batches(np.arange(len(evaluator.examples))):
        real = batch.inputs["attention_mask"].bool()  # [row, token]
        first = real.int().argmax(dim=1)  # [row]; not 0 where texts are padded on the left

        def add(layer, weights, real=real, first=first):  # weights: [row, head, query, key]
            index = first[:, None, None, None].expand(*weights.shape[:3], 1)
            shares = weights.gather(3, index).squeeze(3)  # [row, head, query]
            of_layer = (shares * real[:, None]).sum((0, 2)).cpu().numpy()
            sums[layer, : len(of_layer)] += of_layer

        sum_weights(evaluator.model, batch.inputs, add)
        tokens += float(real.sum())
        evaluator.forwards += len(batch.rows)
    layer, head = grid.flat.T
    return Outcome(sums[layer, head] / tokens)

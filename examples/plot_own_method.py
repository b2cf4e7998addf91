"""
How do I add a method?
======================

A package of yours adds a method through an entry point; nothing in headlab is changed. Here the
package is written on the spot. It scores a head by how sure its attention is.
"""

import importlib
import sys
import tempfile
from pathlib import Path

import headlab
from headlab.charts.head_map import head_map_chart
from headlab.methods import METHODS
from headlab.pictures import map_of_scores

# %%
# The method: what it is called, what it costs, and ``run``, which gives a number for each head.

METHOD_MODULE = """
import numpy as np
from headlab.methods import Method, MethodCost

METHOD = Method(
    key="sureness",
    title="Sureness of attention",
    cost=MethodCost("1 forward an example", lambda options, heads, examples: examples),
    paper="an example",
    estimand="sureness",
    unit="weight",
    signed=False,
    intervals=False,
    module="sureness.method",
    options={},
    whole=True,
)


def run(work):
    from headlab.hooks import sum_weights
    from headlab.methods.run import Outcome

    evaluator = work.evaluator
    grid = evaluator.model.grid
    total, tokens = np.zeros((grid.layers, grid.width)), 0.0
    for batch in evaluator.batches(np.arange(len(evaluator.examples))):
        real = batch.inputs["attention_mask"].bool()

        def add(layer, weights, real=real):
            largest = (weights.amax(-1) * real[:, None]).sum((0, 2))
            total[layer, : len(largest)] += largest.cpu().numpy()

        sum_weights(evaluator.model, batch.inputs, add)
        tokens += float(real.sum())
        evaluator.forwards += len(batch.rows)
    layer, head = grid.flat.T
    return Outcome(total[layer, head] / tokens)
"""

# %%
# ``pip install`` would put these files there; an entry point names the method.

site = Path(tempfile.mkdtemp())
(site / "sureness").mkdir()
(site / "sureness" / "__init__.py").write_text("")
(site / "sureness" / "method.py").write_text(METHOD_MODULE)
metadata = site / "sureness-0.1.dist-info"
metadata.mkdir()
(metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: sureness\nVersion: 0.1\n")
(metadata / "entry_points.txt").write_text("[headlab.methods]\nsureness = sureness.method:METHOD\n")
sys.path.insert(0, str(site))
importlib.invalidate_caches()
METHODS.refresh()
print(METHODS["sureness"].title)

# %%
# It now has its command (``headlab score --method sureness``), its place on the pages, and this:

model = headlab.load("e5-small-intents")
task = headlab.task("intents", languages=["en"])
scores = headlab.score(model, task, method="sureness", size=64)
chart = head_map_chart("Sureness of attention, English", map_of_scores(scores))

# %%
# The site is one environment, so the package goes again.

sys.path[:] = [place for place in sys.path if place != str(site)]
METHODS.refresh()

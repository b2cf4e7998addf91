"""
How does an interval shrink with samples?
=========================================

A head's value is the mean of samples: its gain at random coalitions, on random examples. headlab's
interval holds at every look, so a run may stop as soon as it knows enough. The usual
1.96 standard errors do not: whoever looks often sees them miss.
"""

import numpy as np

from headlab.charts.chart import Axis, Band, Chart, Line, Rule
from headlab.pictures import LINE_COLOURS
from headlab.stats import betting_interval

# %%
# A made-up head whose true value is known: switching it off loses 4 answers in 100 and wins 2.

gains = np.array([-1.0, 0.0, 1.0])
truth = 0.02
rng = np.random.default_rng(7)
samples = rng.choice(gains, size=8_192, p=[0.02, 0.94, 0.04])

# %%
# The interval after 32, 64, 128, … samples.

looks = 2 ** np.arange(5, 14)
counts = np.array([[np.count_nonzero(samples[:n] == gain) for n in looks] for gain in gains])
low, high = betting_interval(gains, counts)
for n, left, right in zip(looks[::2], low[::2], high[::2], strict=True):
    print(f"{n:5,} samples: {100 * left:+6.1f} to {100 * right:+5.1f} points")

# %%
# The truth is the dotted line.

means = np.array([samples[:n].mean() for n in looks])
steps = np.arange(len(looks), dtype=float)
chart = Chart(
    title="One head's interval, sample by sample",
    x=Axis("samples", ticks=tuple((float(i), f"{n:,}") for i, n in enumerate(looks))),
    y=Axis("value, points of accuracy", limits=(-25.0, 25.0)),
    series=[
        Band(steps, 100 * low, 100 * high, LINE_COLOURS[0]),
        Line("mean of the samples", steps, 100 * means, LINE_COLOURS[0]),
    ],
    rules=[Rule("y", 100 * truth, "dot")],
)

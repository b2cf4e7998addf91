"""Intervals, tests and agreement: pure functions of arrays, no model in sight."""

from headlab.stats.agreement import (
    Agreement,
    Estimate,
    Noise,
    Outlier,
    agreement,
    noise_ceiling,
    reliability,
    stepped_up,
)
from headlab.stats.betting import (
    FRACTIONS,
    SHARES,
    Interval,
    bernstein_width,
    betting_interval,
    betting_p,
    log_capital,
    sample_mean,
)
from headlab.stats.bootstrap import Bootstrap, Paired, group_bootstrap, paired_bootstrap, share_interval
from headlab.stats.many import benjamini_hochberg, holm
from headlab.stats.ranks import (
    cluster_order,
    cluster_support,
    cluster_tree,
    clusters,
    spearman,
    spearman_interval,
    spearman_of_counts,
)

__all__ = [
    "FRACTIONS",
    "SHARES",
    "Agreement",
    "Bootstrap",
    "Estimate",
    "Interval",
    "Noise",
    "Outlier",
    "Paired",
    "agreement",
    "benjamini_hochberg",
    "bernstein_width",
    "betting_interval",
    "betting_p",
    "cluster_order",
    "cluster_support",
    "cluster_tree",
    "clusters",
    "group_bootstrap",
    "holm",
    "log_capital",
    "noise_ceiling",
    "paired_bootstrap",
    "reliability",
    "sample_mean",
    "share_interval",
    "spearman",
    "spearman_interval",
    "spearman_of_counts",
    "stepped_up",
]

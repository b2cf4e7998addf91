"""shapiq's approximators that need Python 3.12, in a process that asks its parent for values.

    python3.12 benchmarks/comparison/shapiq_process.py OddSHAP PLAYERS SEED COALITIONS

Arrays go both ways, each as a line of JSON (type and shape) and its bytes. The process sends an empty
array when everything is imported. Then it sends either coalitions (bool), whose values (float) it
waits for, or Shapley values (float), which end a run. Each run has twice as many coalitions as the
one before, but for the methods of `OF_EQUAL_RUNS`. Python 3.11 imports this file too, for which it
needs only NumPy.
"""

from __future__ import annotations

import json
import sys
import warnings
from itertools import count
from typing import IO, Any

import numpy as np

NAMES = ("RegressionMSR", "RegressionMSR, linear", "ProxySHAP", "OddSHAP", "PolySHAP")
OF_EQUAL_RUNS = ("PolySHAP",)
"""Methods that would list every coalition of one head once and for all in a larger run."""
Array = np.ndarray[Any, Any]


def send(stream: IO[bytes], array: Array) -> None:
    """Write an array."""
    stream.write(json.dumps([array.dtype.str, array.shape]).encode() + b"\n")
    stream.write(np.ascontiguousarray(array).tobytes())
    stream.flush()


def receive(stream: IO[bytes]) -> Array | None:
    """Read the next array; None if the other side has ended."""
    line = stream.readline()
    if not line:
        return None
    kind, shape = json.loads(line)
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    data = stream.read(size)
    if len(data) == size:
        return np.frombuffer(data, kind).reshape(shape)
    return None


def approximator(name: str, players: int, seed: int, coalitions: int) -> Any:
    """The approximator of a name, with its defaults except for what the name says.

    PolySHAP is drawn in pairs, and has pairs of heads for half as many terms as a run has coalitions:
    all pairs of 144 heads are 10,296 terms, which no run of its size could determine.
    """
    import shapiq

    if name == "PolySHAP":
        terms = max(players + 1, coalitions // 2)
        return shapiq.approximator.PolySHAP(
            players, max_terms=terms, pairing_trick=True, random_state=seed
        )
    if name == "OddSHAP":
        return shapiq.OddSHAP(players, random_state=seed)
    if name == "ProxySHAP":
        return shapiq.ProxySHAP(players, max_order=1, index="SV", random_state=seed)
    linear = {"proxy_model": "linear", "k_folds": 4} if name == "RegressionMSR, linear" else {}
    return shapiq.RegressionMSR(players, "SV", random_state=seed, **linear)


def main() -> None:
    """Approximate again and again until the parent has had enough."""
    name = sys.argv[1]
    players, seed, coalitions = (int(text) for text in sys.argv[2:5])
    to_parent = sys.stdout.buffer
    from_parent = sys.stdin.buffer
    sys.stdout = sys.stderr  # for whatever the libraries print
    warnings.simplefilter("ignore")

    def values(coalitions_asked: Array) -> Array:
        send(to_parent, np.atleast_2d(coalitions_asked).astype(bool))
        coalition_values = receive(from_parent)
        if coalition_values is None:
            raise SystemExit(0)
        return coalition_values.copy()  # PolySHAP changes what it is given

    approximator(name, players, seed, coalitions)  # imports what it needs
    send(to_parent, np.zeros(0))
    for number in count():
        coalitions_of_run = coalitions if name in OF_EQUAL_RUNS else coalitions << number
        run = approximator(name, players, 1000 * seed + number, coalitions_of_run)
        interaction_values = run.approximate(coalitions_of_run, values)
        send(
            to_parent,
            np.array(
                [interaction_values[(player,)] for player in range(players)], dtype=np.float64
            ),
        )


if __name__ == "__main__":
    main()

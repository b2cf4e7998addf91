"""The parts of benchmarks/gpu.py, one module each: `runs`, `right`, `fast` and `helps`."""

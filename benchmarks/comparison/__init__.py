"""What benchmarks/estimators.py is made of."""

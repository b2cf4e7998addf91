"""`python -m headlab.cli`."""

import sys

from headlab.cli import main

if __name__ == "__main__":
    sys.exit(main())

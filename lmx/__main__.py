"""`python -m lmx` is the command `lmx`."""

import sys

from lmx.cli import main

if __name__ == '__main__':
  sys.exit(main.main())

"""`python -m launch.tables`."""

import sys

from launch import tables

sys.exit(tables.main())

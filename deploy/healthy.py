"""Exit with 0 if an address answers well, else with 1: a check for images that have no curl."""

import sys
from urllib.error import URLError
from urllib.request import urlopen

try:
    with urlopen(sys.argv[1], timeout=5.0):
        pass
except (URLError, OSError):
    sys.exit(1)

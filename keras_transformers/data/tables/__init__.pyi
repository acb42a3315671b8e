# Written by `make stubs`.

from . import columns as columns
from . import reading as reading

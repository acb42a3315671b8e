# Written by `make stubs`.

from . import blocks as blocks
from . import recomputation as recomputation

# Written by `make stubs`.

from . import bands as bands
from . import blocks as blocks
from . import recomputation as recomputation

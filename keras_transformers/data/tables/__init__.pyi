# Written by `make stubs`.

from . import columns as columns
from . import in_memory as in_memory
from . import reading as reading
from .in_memory import Wanted as Wanted
from .in_memory import columns_of as columns_of

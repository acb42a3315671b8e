# Written by `make stubs`.

from . import appending as appending
from . import columns as columns
from . import files as files
from . import in_memory as in_memory
from . import kinds as kinds
from . import reading as reading
from .in_memory import Wanted as Wanted
from .in_memory import columns_of as columns_of
from .kinds import Kind as Kind

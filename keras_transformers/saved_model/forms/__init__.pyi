# Written by `make stubs`.

from . import form as form
from . import int8 as int8
from . import norms as norms
from . import panels as panels
from . import replaced as replaced

# Written by `make stubs`.

from . import audit as audit
from . import check as check
from . import core_ops as core_ops
from . import make_core_ops as make_core_ops
from . import op_origins as op_origins
from . import trials as trials

# Written by `make stubs`.

from . import engines as engines
from . import places as places
from .engines import Beam as Beam
from .engines import Engine as Engine
from .engines import Local as Local
from .engines import Stage as Stage

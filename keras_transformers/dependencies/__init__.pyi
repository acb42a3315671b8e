# Written by `make stubs`.

from . import extras as extras
from . import private_api as private_api
from . import tables as tables

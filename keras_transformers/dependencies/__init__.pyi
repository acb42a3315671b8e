# Written by `make stubs`.

from . import extras as extras
from . import graph_errors as graph_errors
from . import private_api as private_api
from . import tables as tables

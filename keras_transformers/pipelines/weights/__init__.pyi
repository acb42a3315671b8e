# Written by `make stubs`.

from . import adapters as adapters
from . import loading as loading
from . import saving as saving
from . import writing as writing
from .loading import load as load
from .writing import save as save

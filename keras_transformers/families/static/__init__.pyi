# Written by `make stubs`.

from . import files as files
from . import model as model
from .model import num_parameters as num_parameters
from .model import static_vectors as static_vectors

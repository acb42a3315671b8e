# Written by `make stubs`.

from . import files as files
from . import model as model
from .files import FAMILY as FAMILY
from .model import SIZES as SIZES
from .model import mbart as mbart
from .model import num_parameters as num_parameters

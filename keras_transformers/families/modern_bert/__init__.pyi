# Written by `make stubs`.

from . import files as files
from . import model as model
from .files import FAMILY as FAMILY
from .model import SIZES as SIZES
from .model import modern_bert as modern_bert
from .model import num_parameters as num_parameters
from .model import with_head as with_head

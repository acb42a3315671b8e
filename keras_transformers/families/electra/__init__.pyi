# Written by `make stubs`.

from . import files as files
from . import google as google
from . import model as model
from .files import FAMILY as FAMILY
from .model import SIZES as SIZES
from .model import electra as electra
from .model import electra_generator as electra_generator
from .model import num_parameters as num_parameters
from .model import with_pooler as with_pooler

# Written by `make stubs`.

from . import from_encoder as from_encoder
from . import model as model
from . import opennmt_tf as opennmt_tf
from .from_encoder import transformer_from_encoder as transformer_from_encoder
from .model import SIZES as SIZES
from .model import num_parameters as num_parameters
from .model import transformer as transformer

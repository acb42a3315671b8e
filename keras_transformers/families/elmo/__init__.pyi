# Written by `make stubs`.

from . import bilm_tf as bilm_tf
from . import files as files
from . import model as model
from .files import load_elmo as load_elmo
from .files import read_elmo_options as read_elmo_options
from .files import save_elmo as save_elmo
from .files import save_elmo_encoder as save_elmo_encoder
from .files import save_elmo_options as save_elmo_options
from .model import SIZES as SIZES
from .model import elmo as elmo
from .model import features as features
from .model import language_model as language_model
from .model import num_parameters as num_parameters
from .model import split as split

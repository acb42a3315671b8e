# Written by `make stubs`.

from . import files as files
from . import google as google
from . import keras_bert as keras_bert
from . import model as model
from . import model_garden as model_garden
from . import shrinking as shrinking
from .files import FAMILY as FAMILY
from .google import read_google_bert_config as read_google_bert_config
from .model import SIZES as SIZES
from .model import bert as bert
from .model import num_parameters as num_parameters
from .shrinking import shrink_bert as shrink_bert

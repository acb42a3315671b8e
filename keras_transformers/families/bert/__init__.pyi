# Written by `make stubs`.

from . import files as files
from . import gguf as gguf
from . import google as google
from . import google_checkpoint as google_checkpoint
from . import keras_bert as keras_bert
from . import keras_bert_h5 as keras_bert_h5
from . import model as model
from . import model_garden as model_garden
from . import model_garden_checkpoint as model_garden_checkpoint
from . import shapes as shapes
from . import shrinking as shrinking
from .files import FAMILY as FAMILY
from .google import read_google_bert_config as read_google_bert_config
from .model import SIZES as SIZES
from .model import bert as bert
from .model import num_parameters as num_parameters
from .shrinking import shrink_bert as shrink_bert

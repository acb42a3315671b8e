# Written by `make stubs`.

from . import arrays as arrays
from . import gguf as gguf
from . import hdf5 as hdf5
from . import keras_names as keras_names
from . import leveldb_table as leveldb_table
from . import mapped as mapped
from . import not_read as not_read
from . import pickles as pickles
from . import safetensors as safetensors
from . import tf_checkpoint as tf_checkpoint
from . import tf_h5 as tf_h5
from .arrays import Arrays as Arrays
from .arrays import Container as Container
from .arrays import open_arrays as open_arrays
from .not_read import NotRead as NotRead

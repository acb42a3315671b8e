# Written by `make stubs`.

from . import attention as attention
from . import bridges as bridges
from . import cells as cells
from . import choices as choices
from . import decoder as decoder
from . import encoder as encoder
from . import teacher_forcing as teacher_forcing
from .attention import RnnAttention as RnnAttention
from .cells import GRUCell as GRUCell
from .cells import LSTMCell as LSTMCell
from .cells import RNNCell as RNNCell
from .cells import Recurrent as Recurrent
from .choices import Readout as Readout
from .decoder import RecurrentDecoder as RecurrentDecoder
from .encoder import RecurrentEncoder as RecurrentEncoder
from .teacher_forcing import TeacherForcing as TeacherForcing

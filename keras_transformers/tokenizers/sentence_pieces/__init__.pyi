# Written by `make stubs`.

from . import added as added
from . import albert as albert
from . import encoder_pieces as encoder_pieces
from . import m2m_100 as m2m_100
from . import marian as marian
from . import nllb as nllb
from . import t5 as t5
from . import xlm_roberta as xlm_roberta
from .added import AddedPieces as AddedPieces
from .added import join_around as join_around
from .albert import AlbertTokenizer as AlbertTokenizer
from .m2m_100 import M2M100Tokenizer as M2M100Tokenizer
from .marian import MarianTokenizer as MarianTokenizer
from .nllb import NllbTokenizer as NllbTokenizer
from .t5 import T5Tokenizer as T5Tokenizer
from .xlm_roberta import XlmRobertaTokenizer as XlmRobertaTokenizer

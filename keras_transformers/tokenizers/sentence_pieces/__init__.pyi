# Written by `make stubs`.

from . import added as added
from . import albert as albert
from . import camembert as camembert
from . import deberta as deberta
from . import encoder_pieces as encoder_pieces
from . import fairseq as fairseq
from . import folding as folding
from . import m2m_100 as m2m_100
from . import marian as marian
from . import mt5 as mt5
from . import nllb as nllb
from . import pegasus as pegasus
from . import t5 as t5
from . import xlm_roberta as xlm_roberta
from .added import AddedPieces as AddedPieces
from .added import join_around as join_around
from .albert import AlbertTokenizer as AlbertTokenizer
from .camembert import CamembertTokenizer as CamembertTokenizer
from .deberta import DebertaTokenizer as DebertaTokenizer
from .m2m_100 import M2M100Tokenizer as M2M100Tokenizer
from .marian import MarianTokenizer as MarianTokenizer
from .mt5 import MT5Tokenizer as MT5Tokenizer
from .nllb import NllbTokenizer as NllbTokenizer
from .pegasus import PegasusTokenizer as PegasusTokenizer
from .t5 import T5Tokenizer as T5Tokenizer
from .xlm_roberta import XlmRobertaTokenizer as XlmRobertaTokenizer

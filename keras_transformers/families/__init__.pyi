# Written by `make stubs`.

from . import albert as albert
from . import bert as bert
from . import distilbert as distilbert
from . import electra as electra
from . import elmo as elmo
from . import fasttext as fasttext
from . import gpt as gpt
from . import llama as llama
from . import m2m_100 as m2m_100
from . import marian as marian
from . import mistral as mistral
from . import modern_bert as modern_bert
from . import mpnet as mpnet
from . import openai_gpt as openai_gpt
from . import qwen2 as qwen2
from . import qwen3 as qwen3
from . import roberta as roberta
from . import seq2seq as seq2seq
from . import static as static
from . import t5 as t5
from . import transformer as transformer
from . import vit as vit
from . import xlm_roberta as xlm_roberta

# Written by `make stubs`.

from . import classification as classification
from . import embedding as embedding
from . import generation as generation
from . import image_classification as image_classification
from . import multi_label_classification as multi_label_classification
from . import multiple_choice as multiple_choice
from . import next_sentence as next_sentence
from . import question_answering as question_answering
from . import regression as regression
from . import reranking as reranking
from . import tagging as tagging
from . import translation as translation

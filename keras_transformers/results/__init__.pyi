# Written by `make stubs`.

from keras_transformers.tasks.classification.answer import Classification as Classification
from keras_transformers.tasks.embedding.answer import Embedding as Embedding
from keras_transformers.tasks.fill_mask.answer import MaskedTokens as MaskedTokens
from keras_transformers.tasks.generation.answer import Generation as Generation
from keras_transformers.tasks.generation.answer import Reply as Reply
from keras_transformers.tasks.generation.answer import Selection as Selection
from keras_transformers.tasks.generation.answer import ToolCall as ToolCall
from keras_transformers.tasks.multi_label_classification.answer import Labels as Labels
from keras_transformers.tasks.multiple_choice.answer import Choice as Choice
from keras_transformers.tasks.next_sentence.answer import NextSentence as NextSentence
from keras_transformers.tasks.question_answering.answer import Answer as Answer
from keras_transformers.tasks.regression.answer import Regression as Regression
from keras_transformers.tasks.reranking.answer import Ranking as Ranking
from keras_transformers.tasks.search.answer import Hits as Hits
from keras_transformers.tasks.sparse_embedding.answer import SparseEmbedding as SparseEmbedding
from keras_transformers.tasks.tagging.answer import TaggedEntity as TaggedEntity
from keras_transformers.tasks.tagging.answer import Tags as Tags
from keras_transformers.tasks.translation.answer import Translation as Translation
from keras_transformers.tasks.word_embedding.answer import WordVectors as WordVectors
from keras_transformers.tasks.zero_shot_classification.answer import ZeroShotLabel as ZeroShotLabel
from keras_transformers.tasks.answers import AnswerType as AnswerType
from keras_transformers.tasks.answers import Result as Result

# Written by `make stubs`.

from keras_transformers.models import features as features
from keras_transformers.tasks.classification.head import causal_classifier as causal_classifier
from keras_transformers.tasks.classification.head import classifier as classifier
from keras_transformers.tasks.classification.head import paired_vectors as paired_vectors
from keras_transformers.tasks.embedding.head import embedder as embedder
from keras_transformers.tasks.embedding.head import grouped_embedder as grouped_embedder
from keras_transformers.tasks.embedding.head import with_cls_pooling as with_cls_pooling
from keras_transformers.tasks.embedding.head import with_last_pooling as with_last_pooling
from keras_transformers.tasks.embedding.head import with_mean_pooling as with_mean_pooling
from keras_transformers.tasks.fill_mask.head import masked_lm as masked_lm
from keras_transformers.tasks.fill_mask.head import pretrainer as pretrainer
from keras_transformers.tasks.fill_mask.head import pretraining_parameters as pretraining_parameters
from keras_transformers.tasks.late_interaction.head import in_batch_scorer as in_batch_scorer
from keras_transformers.tasks.late_interaction.head import token_embedder as token_embedder
from keras_transformers.tasks.multiple_choice.head import multiple_choice as multiple_choice
from keras_transformers.tasks.question_answering.head import span_extractor as span_extractor
from keras_transformers.tasks.regression.head import regressor as regressor
from keras_transformers.tasks.replaced_tokens.head import electra_pretrainer as electra_pretrainer
from keras_transformers.tasks.replaced_tokens.head import replaced_token_detector as replaced_token_detector
from keras_transformers.tasks.replaced_tokens.head import replaced_token_tagger as replaced_token_tagger
from keras_transformers.tasks.reranking.head import answer_scorer as answer_scorer
from keras_transformers.tasks.sparse_embedding.head import grouped_sparse_embedder as grouped_sparse_embedder
from keras_transformers.tasks.sparse_embedding.head import sparse_embedder as sparse_embedder
from keras_transformers.tasks.tagging.head import tagger as tagger
from keras_transformers.models.packing import packed as packed

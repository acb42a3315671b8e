from data import DOCUMENTS, FOLDER, NEW_DOCUMENTS, NEW_QUERIES, NEW_RELEVANT, QUERIES, RELEVANT

import keras_transformers as kt

rerank = kt.load(FOLDER, pipeline="reranking")
kt.fit(rerank, (QUERIES, DOCUMENTS, RELEVANT), epochs=1)
print(kt.evaluate(rerank, (NEW_QUERIES, NEW_DOCUMENTS, NEW_RELEVANT)))
print(rerank("Where is it?", ["In the north.", "A warm film."]))

from data import FOLDER, LABELS, NEW_LABELS, NEW_TEXTS, TEXTS

import keras_transformers as kt

classify = kt.load(FOLDER, pipeline="classification", labels=["bad", "good"])
kt.fit(classify, (TEXTS, LABELS), epochs=1)
print(kt.evaluate(classify, (NEW_TEXTS, NEW_LABELS)))
print(classify("A warm film."))

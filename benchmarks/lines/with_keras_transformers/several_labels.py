from data import FOLDER, LABEL_SETS, NEW_LABEL_SETS, NEW_TEXTS, TEXTS

import keras_transformers as kt

label = kt.load(FOLDER, pipeline="multi_label_classification", labels=["long", "sad", "warm"])
kt.fit(label, (TEXTS, LABEL_SETS), epochs=1)
print(kt.evaluate(label, (NEW_TEXTS, NEW_LABEL_SETS)))
print(label("A warm film."))

import tensorflow as tf
import tensorflow_text
from data import FOLDER, LABELS, TEXTS

import keras_transformers as kt

classify = kt.load(FOLDER, pipeline="classification", labels=["bad", "good"])
kt.fit(classify, (TEXTS, LABELS), epochs=1)
kt.export(classify, "export")
serve = tf.saved_model.load("export/1").signatures["serving_default"]
print(serve(tf.constant(["A warm film."])))

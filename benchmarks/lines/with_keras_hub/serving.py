import keras
import keras_hub
import tensorflow as tf
from data import FOLDER, LABELS, TEXTS

names = ["bad", "good"]
classify = keras_hub.models.BertTextClassifier.from_preset(FOLDER, num_classes=2)
classify.compile(
    optimizer=keras.optimizers.Adam(5e-5),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
classify.fit(TEXTS, [names.index(label) for label in LABELS], epochs=1, batch_size=32)


@tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
def answer(texts):
    scores = tf.nn.softmax(classify(classify.preprocessor(texts)))
    return {"scores": scores, "label": tf.gather(names, tf.argmax(scores, axis=-1))}


archive = keras.export.ExportArchive()
archive.track(classify)
archive.add_endpoint("serve", answer)
archive.write_out("export/1")
serve = tf.saved_model.load("export/1").signatures["serving_default"]
print(serve(tf.constant(["A warm film."])))

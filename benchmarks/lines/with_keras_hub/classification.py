import keras
import keras_hub
from data import FOLDER, LABELS, NEW_LABELS, NEW_TEXTS, TEXTS

names = ["bad", "good"]
classify = keras_hub.models.BertTextClassifier.from_preset(FOLDER, num_classes=2)
classify.compile(
    optimizer=keras.optimizers.Adam(5e-5),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
classify.fit(TEXTS, [names.index(label) for label in LABELS], epochs=1, batch_size=32)
print(classify.evaluate(NEW_TEXTS, [names.index(label) for label in NEW_LABELS], return_dict=True))
logits = classify.predict(["A warm film."])
print(names[logits[0].argmax()], keras.ops.softmax(logits)[0])

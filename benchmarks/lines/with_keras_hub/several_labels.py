import keras
import keras_hub
from data import FOLDER, LABEL_SETS, NEW_LABEL_SETS, NEW_TEXTS, TEXTS

names = ["long", "sad", "warm"]
label = keras_hub.models.BertTextClassifier.from_preset(
    FOLDER, num_classes=len(names), activation="sigmoid"
)
label.compile(
    optimizer=keras.optimizers.Adam(5e-5),
    loss=keras.losses.BinaryCrossentropy(),
    metrics=[
        keras.metrics.F1Score(average="micro", threshold=0.5, name="micro_f1"),
        keras.metrics.F1Score(average="macro", threshold=0.5, name="macro_f1"),
    ],
)


def targets(label_sets):
    return [[float(name in labels) for name in names] for labels in label_sets]


label.fit(TEXTS, targets(LABEL_SETS), epochs=1, batch_size=32)
print(label.evaluate(NEW_TEXTS, targets(NEW_LABEL_SETS), return_dict=True))
scores = label.predict(["A warm film."])
print([name for name, score in zip(names, scores[0], strict=True) if score > 0.5])

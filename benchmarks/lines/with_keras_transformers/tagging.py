from data import FOLDER, NEW_TAGS, NEW_WORDS, TAGS, WORDS

import keras_transformers as kt

tag = kt.load(FOLDER, pipeline="tagging", labels=["O", "B-LOC", "I-LOC"])
kt.fit(tag, (WORDS, TAGS), epochs=1)
print(kt.evaluate(tag, (NEW_WORDS, NEW_TAGS)))
print(tag("She lives in New York").entities)

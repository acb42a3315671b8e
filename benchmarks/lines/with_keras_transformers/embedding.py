from data import ANSWERS, FOLDER, NEW_ANSWERS, NEW_QUESTIONS, QUESTIONS

import keras_transformers as kt

embed = kt.load(FOLDER, pipeline="embedding")
kt.fit(embed, (QUESTIONS, ANSWERS), epochs=1)
print(kt.evaluate(embed, (NEW_QUESTIONS, NEW_ANSWERS)))
print(embed("Where is it?").vector)
